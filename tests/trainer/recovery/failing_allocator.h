// LibTorch's CPU allocator with failures: counts the requests made while a training step is in a phase that
// may fail, and throws LibTorch's out-of-memory error at the n-th.
#pragma once
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <cstring>

#include "trainer/step/training_step.h"

namespace spillway::trainer {

class FailingAllocator : public c10::Allocator {
 public:
  // Numbers that LibTorch wraps as tensors of one element are on the host wherever the model is: the commit
  // may have them.
  static constexpr size_t kSmallestInCommit = 64;

  static FailingAllocator& install() {
    static FailingAllocator allocator(c10::GetCPUAllocator());
    c10::SetAllocator(c10::kCPU, &allocator, /*priority=*/100);
    return allocator;
  }

  const TrainingStep* program = nullptr;
  uint64_t fail_at = 0;  // 0: never
  bool persistent = false;
  uint64_t requests = 0, fired = 0, in_commit = 0;

  void arm(const TrainingStep* step, uint64_t n, bool from_then_on) {
    program = step, fail_at = n, persistent = from_then_on;
    requests = fired = in_commit = 0;
  }
  // Before the program ends; what was counted stays.
  void leave_alone() { program = nullptr; }

  c10::DataPtr allocate(size_t bytes) override {
    if (program && *program->phase()) count(bytes);
    return inner_->allocate(bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override { return inner_->raw_deleter(); }
  void copy_data(void* to, const void* from, std::size_t count) const override {
    std::memcpy(to, from, count);
  }

 private:
  explicit FailingAllocator(c10::Allocator* inner) : inner_(inner) {}

  void count(size_t bytes) {
    if (std::strcmp(program->phase(), "commit") == 0) {
      in_commit += bytes >= kSmallestInCommit;
      return;
    }
    ++requests;
    if (fail_at == 0 || requests < fail_at || (requests > fail_at && !persistent)) return;
    ++fired;
    TORCH_CHECK_WITH(OutOfMemoryError, false, "injected: no room for ", bytes, " bytes");
  }

  c10::Allocator* inner_;
};

}  // namespace spillway::trainer
