// A checkpoint of which a bit has changed is refused, and changes nothing.
#include "trainer/checkpoint/checksums.h"

#include <gmock/gmock.h>

#include <cstring>
#include <fstream>

#include "tests/trainer/recovery/recovery_fixture.h"
#include "trainer/checkpoint/checkpoint.h"

namespace spillway::trainer {
namespace {

class Checksums : public Recovery {
 protected:
  void SetUp() override {
    Recovery::SetUp();
    Fixture run(config_, corpus_);
    ASSERT_EQ(run.step.run(0), StepOutcome::kDone);
    std::string error;
    ASSERT_TRUE(save_checkpoint(path_, config_, corpus_, run.program, {config_.plan}, &error)) << error;
  }

  std::string bytes() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void change_bit(size_t at) const {
    std::string changed = bytes();
    changed.at(at) = static_cast<char>(changed[at] ^ 1);
    std::ofstream(path_, std::ios::binary) << changed;
  }
  // Where the last byte of a tensor stands in the file.
  size_t end_of(const std::string& name) const {
    std::string error;
    const auto file = safetensors::File::open(path_, &error);
    EXPECT_NE(file, nullptr) << error;
    const auto data = file->tensors().at(name).data;
    return bytes().find(std::string(reinterpret_cast<const char*>(data.data()), data.size())) + data.size() -
           1;
  }
  // Why the checkpoint is refused; "" where it is not.
  std::string refusal() {
    Fixture resumed(config_, corpus_);
    const uint64_t before = resumed.program.parameters().hash();
    std::string error;
    const bool loaded = load_checkpoint(path_, config_, &resumed.program, &error);
    EXPECT_EQ(resumed.program.parameters().hash() != before, loaded);
    return loaded ? "" : error;
  }

  const std::string path_ = scratch_.file("checkpoint");
};

TEST_F(Checksums, OfEachTensorThatIsRestored) {
  EXPECT_EQ(refusal(), "");
  std::string error;
  const auto file = safetensors::File::open(path_, &error);
  ASSERT_NE(file, nullptr) << error;
  for (const std::string kind : {"model.", "optimizer.", "random.", "checksums"}) {
    const auto tensor = file->tensors().lower_bound(kind);
    ASSERT_TRUE(tensor->first.starts_with(kind));
    const size_t at = end_of(tensor->first);
    change_bit(at);
    const std::string told =
        kind == "checksums" ? "has other bytes" : "'" + tensor->first + "' has other bytes";
    EXPECT_THAT(refusal(), testing::HasSubstr(told));
    change_bit(at);
  }
  EXPECT_EQ(refusal(), "");
}

TEST_F(Checksums, OfTheMetadata) {
  change_bit(bytes().find("\"cursor\":\"") + 10);
  EXPECT_THAT(refusal(), testing::HasSubstr("'__metadata__' has other bytes"));
}

TEST_F(Checksums, AFileThatHasNoneIsTaken) {
  std::string error;
  const auto file = safetensors::File::open(path_, &error);
  ASSERT_NE(file, nullptr) << error;
  std::vector<safetensors::Item> items;
  for (const auto& [name, tensor] : file->tensors()) {
    if (name == kChecksums) continue;
    items.push_back({name, tensor.type, tensor.shape, [data = tensor.data](std::span<std::byte> bytes) {
                       std::memcpy(bytes.data(), data.data(), bytes.size());
                     }});
  }
  ASSERT_TRUE(safetensors::write(path_, items, file->metadata(), &error)) << error;
  EXPECT_EQ(refusal(), "");
}

}  // namespace
}  // namespace spillway::trainer
