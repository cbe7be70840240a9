// One tensor that several layers read, such that the sum of its gradients does not depend on who is done
// first.
//
// Autograd adds what arrives, in the order of arrival: with three readers, on threads of two devices, that
// order is chance, and the sum's last bit with it. Here each reader's gradient is added to the sum of the
// later ones: two terms at a time, whose order does not matter. The sum goes with the readers from device to
// device, so that its terms are the same ones wherever they lie.
//
// Thread-safety: one thread. Ownership: shares the tensor; the pieces outlive it. Errors: LibTorch's
// exceptions.
#pragma once
#include <optional>

#include "trainer/model/pieces/pieces.h"

namespace spillway::trainer {

class SharedInput {
 public:
  // `pieces`: of the forward, if it is in pieces, which cut it.
  explicit SharedInput(at::Tensor value, Pieces* pieces = nullptr);
  ~SharedInput();
  SharedInput(const SharedInput&) = delete;
  // The tensor for the next reader, in the order of the forward; a copy of it where the last reader was on
  // another device.
  at::Tensor for_reader_on(at::Device device);
  // What later readers will read.
  at::Tensor* rest() { return &rest_; }

 private:
  Pieces* const pieces_;
  at::Tensor rest_;
};

// A weight with two readers in one forward. Autograd adds their two gradients, in pieces as a shared input
// does.
class TiedWeight {
 public:
  TiedWeight(const at::Tensor& weight, Pieces* pieces) : weight_(weight) {
    if (pieces != nullptr) shared_.emplace(weight, pieces);
  }
  // For the next reader, in the order of the forward.
  at::Tensor next() { return shared_ ? shared_->for_reader_on(weight_.device()) : weight_; }

 private:
  const at::Tensor weight_;
  std::optional<SharedInput> shared_;
};

}  // namespace spillway::trainer
