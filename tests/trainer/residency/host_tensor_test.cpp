// Host memory for copies, and the streams that these run on, on a simulated card.
#include "trainer/residency/host_tensor.h"

#include "tests/trainer/simulated.h"
#include "trainer/residency/copy_stream.h"
#include "trainer/residency/nvme/layer_file.h"

namespace spillway::trainer {
namespace {

const at::Device kCard(at::kCUDA, 0);

class HostTensor : public Simulated {
 protected:
  ~HostTensor() override { EXPECT_EQ(violations(), ""); }
};

TEST_F(HostTensor, IsPageLockedAndOfTheSizeAskedFor) {
  const at::Tensor there = at::empty({1}, at::TensorOptions(kCard));  // LibTorch knows the card from now on
  const at::Tensor tensor = host_tensor({3, 1000}, at::kFloat, kCard);
  EXPECT_TRUE(tensor.is_pinned());
  EXPECT_EQ(tensor.nbytes(), 12000u);
  EXPECT_TRUE(tensor.is_cpu());
  EXPECT_EQ(host_tensor({0}, at::kFloat, kCard).numel(), 0);
}

TEST_F(HostTensor, SaysWhatTheHostHasNot) {
  const at::Tensor there = at::empty({1}, at::TensorOptions(kCard));  // LibTorch knows the card from now on
  simulator().fail_call(1, "cuMemHostAlloc", 0, CUDA_ERROR_OUT_OF_MEMORY);
  try {
    host_tensor({1000}, at::kFloat, kCard);
    FAIL() << "nothing was thrown";
  } catch (const c10::OutOfMemoryError& error) {
    EXPECT_THAT(error.what_without_backtrace(), testing::HasSubstr("no 4000 bytes to lock"));
  }
  EXPECT_NO_THROW(host_tensor({1000}, at::kFloat, kCard));
}

TEST_F(HostTensor, CopiesRunBesideAndAreWaitedFor) {
  const at::Tensor host = host_tensor({1 << 20}, at::kFloat, kCard), back = at::empty_like(host);
  host.fill_(7);
  at::Tensor there = at::empty({1 << 20}, at::TensorOptions(kCard));
  CopyStream& to_device = CopyStream::of(kCard, Direction::kToDevice);
  CopyStream& to_host = CopyStream::of(kCard, Direction::kToHost);
  to_device.wait_for(to_device.computed());
  to_device.copy(there, host);
  compute_after(to_device.copied(), kCard);
  there.add_(1);
  to_host.wait_for(to_host.computed());
  to_host.copy(back, there);
  there.reset();  // its memory stays until the copy is done
  wait_on_host(to_host.copied());
  EXPECT_TRUE(back.eq(8).all().item<bool>());
}

// As when a step is undone while what its layers keep is on its way to a disk.
TEST_F(HostTensor, BuffersOfAFileStayUntilTheDeviceHasCopied) {
  const at::Tensor there = at::ones({1 << 24}, at::TensorOptions(kCard).dtype(at::kByte));
  CopyStream& to_host = CopyStream::of(kCard, Direction::kToHost);
  auto file = std::make_shared<LayerFile>(kCard, scratch_.file(""), "activations");
  auto home = file->home("of a layer", there.nbytes());
  to_host.wait_for(to_host.computed());
  to_host.copy(home->overwrite(&to_host), there);
  home->written_by(to_host.copied());
  home.reset(), file.reset();
  EXPECT_EQ(violations(), "");
}

}  // namespace
}  // namespace spillway::trainer
