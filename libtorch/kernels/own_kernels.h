// The kernels that take an operator's arguments unboxed, by their operators: a graph sees them only
// through a boxed function in front of each.
//
// Thread-safety: none; used while the kernels are installed. Errors: c10::Error.
#pragma once
#include <ATen/core/boxing/KernelFunction.h>
#include <torch/library.h>

#include <string>
#include <utility>
#include <vector>

namespace spillway::kernels {

class OwnKernels {
 public:
  explicit OwnKernels(torch::Library& library) : library_(library) {}

  struct Kernel {
    std::string name;  // of the operator, with its overload: "mm.dtype"
    c10::KernelFunction function;
  };

  // LibTorch compares the function's arguments with the operator's.
  template <class Function>
  void impl(const char* name, Function* function) {
    library_.impl(name, function);
    kernels_.push_back({name, c10::KernelFunction::makeFromUnboxedRuntimeFunction(function)});
  }
  const std::vector<Kernel>& kernels() const { return kernels_; }

 private:
  torch::Library& library_;
  std::vector<Kernel> kernels_;
};

}  // namespace spillway::kernels
