// spillway::recover for a training step on LibTorch, with any allocator. Header only.
//
// A step whose backward pass failed is undone once autograd's threads have left it. Thread-safety: one thread
// at a time, and none that draws random numbers meanwhile. Errors: those of spillway::recover, with
// c10::Error.
#pragma once
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/autograd.h>

#include <string_view>
#include <utility>
#include <vector>

#include "spillway/recover.h"

namespace spillway::libtorch {

// Whether an error says that memory ran out: by its class, or by its text where CUDA's libraries could not
// allocate.
inline bool is_out_of_memory(const c10::Error& error) {
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error)) return true;
  const std::string_view text = error.what_without_backtrace();
  for (const std::string_view sign :
       {"out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED"})
    if (text.find(sign) != text.npos) return true;
  return false;
}

// Runs an empty backward pass on the device's autograd thread, which has then left the failed one. Nothing is
// allocated: the tensors have no elements.
inline void wait_for_autograd(at::Device device) {
  const c10::InferenceMode not_inference(false);  // which AutoGradMode does not end
  const at::AutoGradMode record(true);
  const at::Tensor leaf = at::empty({0}, at::TensorOptions().device(device)).requires_grad_(true);
  const at::Tensor output = leaf.view({0, 1});
  torch::autograd::grad({output}, {leaf}, {output.detach()});
}

// The states of the CPU's and one CUDA device's default generators, for `undo`.
class RandomStates {
 public:
  explicit RandomStates(at::Device device) {
    for (const at::Device one : {at::Device(at::kCPU), device}) {
      at::Generator generator = at::globalContext().defaultGenerator(one);
      const std::lock_guard lock(generator.mutex());
      states_.emplace_back(generator, generator.get_state());
    }
  }
  void restore() {
    for (auto& [generator, state] : states_) {
      const std::lock_guard lock(generator.mutex());
      generator.set_state(state);
    }
  }

 private:
  std::vector<std::pair<at::Generator, at::Tensor>> states_;
};

// spillway::recover of a step that computes on `device`; random numbers are drawn again as they were.
template <class Attempt, class Undo, class MakeRoom>
auto recover(at::Device device, Attempt&& attempt, Undo&& undo, MakeRoom&& make_room, uint32_t attempts = 8) {
  RandomStates random(device);
  const auto undo_all = [&] {
    wait_for_autograd(device);
    random.restore();
    undo();
  };
  return spillway::recover<c10::Error>(attempt, undo_all, make_room, attempts, is_out_of_memory);
}

}  // namespace spillway::libtorch
