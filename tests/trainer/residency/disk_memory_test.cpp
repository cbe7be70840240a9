// Memory that files are read into and written from, on a simulated card.
#include <fstream>
#include <sstream>

#include "tests/trainer/simulated.h"
#include "trainer/optimizer/states/nvme_states.h"

namespace spillway::trainer {
namespace {

class DiskMemory : public Simulated {
 protected:
  ~DiskMemory() override { EXPECT_EQ(violations(), ""); }
};

// The kernel's flags of the mapping that holds an address.
std::string mapping_flags(const void* memory) {
  std::ifstream maps("/proc/self/smaps");
  bool here = false;
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0, end = 0;
    char dash = 0;
    std::istringstream words(line);
    if (words >> std::hex >> begin >> dash >> end && dash == '-')
      here = begin <= reinterpret_cast<uintptr_t>(memory) && reinterpret_cast<uintptr_t>(memory) < end;
    if (here && line.rfind("VmFlags:", 0) == 0) return line + " ";
  }
  return "";
}

TEST_F(DiskMemory, OfStatesIsPageLockedAndInHugePages) {
  const at::Device card(at::kCUDA, 0);
  const at::Tensor there = at::empty({1}, at::TensorOptions(card));  // LibTorch knows the card from now on
  NvmeStates states(scratch_.file(""));
  constexpr uint64_t kBytes = 3 << 20;
  states.reserve(kBytes);
  states.make_buffers(kBytes, 2, card);
  std::vector<Record> records(1);
  records[0].piece = states.piece(kBytes);
  states.write_all(records, [](size_t, const at::Tensor& bytes) { bytes.fill_(5); });
  states.read_all(records, [](size_t, const at::Tensor& bytes) {
    EXPECT_TRUE(bytes.is_pinned());
    EXPECT_THAT(mapping_flags(bytes.const_data_ptr()), testing::HasSubstr(" hg "));
    EXPECT_TRUE(bytes.eq(5).all().item<bool>());
  });
}

// Some machines lock memory that the driver makes, and no other.
TEST_F(DiskMemory, OfTheDriversIsTakenWhereOthersCannotBeLocked) {
  const at::Device card(at::kCUDA, 0);
  const at::Tensor there = at::empty({1}, at::TensorOptions(card));
  NvmeStates states(scratch_.file(""));
  simulator().fail_call(1, "cuMemHostRegister", 0, CUDA_ERROR_NOT_SUPPORTED);
  states.reserve(1 << 20);
  states.make_buffers(1 << 20, 1, card);
  std::vector<Record> records(1);
  records[0].piece = states.piece(1 << 20);
  states.write_all(records, [](size_t, const at::Tensor& bytes) { EXPECT_TRUE(bytes.is_pinned()); });
}

}  // namespace
}  // namespace spillway::trainer
