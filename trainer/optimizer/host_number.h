// A number that a tensor on any device is multiplied by or added to, made once.
//
// LibTorch would wrap a plain number in a fresh tensor at each use, and a commit allocates nothing.
//
// Thread-safety: one thread. Ownership: owns a tensor of one float on the host. Errors: none after it is
// made.
#pragma once
#include "trainer/libtorch.h"

namespace spillway::trainer {

class HostNumber {
 public:
  HostNumber& operator=(double value) {
    *tensor_.mutable_data_ptr<float>() = static_cast<float>(value);
    return *this;
  }
  operator const at::Tensor&() const { return tensor_; }

 private:
  at::Tensor tensor_ = at::zeros({}, at::kFloat);
};

}  // namespace spillway::trainer
