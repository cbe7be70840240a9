// The recoverable step for programs of one's own on LibTorch, on a card of 512 MiB.
#include "spillway/libtorch/recover.h"

#include <gtest/gtest.h>

#include <vector>

namespace {

using spillway::libtorch::is_out_of_memory;
using spillway::libtorch::recover;

constexpr int64_t kMiB = int64_t{1} << 20;

at::TensorOptions on_card() {
  return at::TensorOptions().device(at::Device(at::kCUDA, 0));
}

bool accept(uint32_t) {
  return true;
}

TEST(RecoverOnLibTorch, RandomNumbersAreDrawnAgainAsTheyWere) {
  std::vector<double> drawn;
  const auto step = recover(
      at::Device(at::kCUDA, 0),
      [&] {
        drawn.push_back(at::rand({1}).item<double>());
        drawn.push_back(at::rand({1}, on_card()).item<double>());
        if (drawn.size() < 4) at::empty({1024 * kMiB}, on_card());
      },
      [] {}, accept);
  EXPECT_TRUE(step);
  ASSERT_EQ(drawn.size(), 4u);
  EXPECT_EQ(drawn[0], drawn[2]);
  EXPECT_EQ(drawn[1], drawn[3]);
  EXPECT_NE(step.last_failure.find("out of memory"), std::string::npos);
}

TEST(RecoverOnLibTorch, TheFailedStepsTensorsAreGoneWhenRoomIsMade) {
  int64_t bytes = 480 * kMiB;  // an output of another such size has no place
  at::Tensor leaf = at::ones({kMiB}, on_card()).requires_grad_(true);
  const auto attempt = [&] {
    const at::Tensor wide = leaf.expand({bytes / (4 * kMiB), kMiB}) * 1;
    wide.sum().backward();
    return leaf.grad().sum().item<double>();
  };
  int shrunk = 0;
  const auto halve = [&](uint32_t) {
    bytes /= 2;
    ++shrunk;
    return true;
  };
  const auto step = recover(at::Device(at::kCUDA, 0), attempt, [&] { leaf.mutable_grad().reset(); }, halve);
  EXPECT_GE(shrunk, 1);
  EXPECT_LE(shrunk, 2);
  EXPECT_EQ(step.result.value_or(0), double(bytes) / 4);
}

TEST(RecoverOnLibTorch, InferenceIsDoneAgain) {
  const c10::InferenceMode inference;
  int attempts = 0;
  const auto step = recover(
      at::Device(at::kCUDA, 0), [&] { at::empty({(++attempts == 1 ? 1024 : 1) * kMiB}, on_card()); }, [] {},
      accept);
  EXPECT_TRUE(step);
  EXPECT_EQ(attempts, 2);
}

TEST(RecoverOnLibTorch, ShortagesAreKnownByClassAndText) {
  const auto says = [](const char* text) { return c10::Error({"says", __FILE__, 0}, text); };
  EXPECT_TRUE(is_out_of_memory(c10::OutOfMemoryError({__func__, __FILE__, 0}, "no room")));
  EXPECT_TRUE(is_out_of_memory(says("CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")));
  EXPECT_FALSE(is_out_of_memory(says("shapes do not match")));
}

}  // namespace
