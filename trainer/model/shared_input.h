// One tensor that several layers read, such that the sum of its gradients does not depend on who is done
// first.
//
// Autograd adds what arrives, in the order of arrival: with three readers, on threads of two devices, that
// order is chance, and the sum's last bit with it. Here each reader's gradient is added to the sum of the
// later ones: two terms at a time, whose order does not matter.
//
// Thread-safety: one thread. Ownership: shares the tensor. Errors: LibTorch's exceptions.
#pragma once
#include <map>

#include "trainer/libtorch.h"

namespace spillway::trainer {

class SharedInput {
 public:
  explicit SharedInput(at::Tensor value);
  // The tensor for the next reader, in the order of the forward. A device that has no copy yet gets one.
  at::Tensor for_reader_on(at::Device device);

 private:
  static at::Tensor take(at::Tensor* rest);

  at::Tensor rest_;
  std::map<int, at::Tensor> copies_;  // by device index, of other devices
};

}  // namespace spillway::trainer
