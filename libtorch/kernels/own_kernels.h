// The kernels that take an operator's arguments unboxed, and the names of their operators: a graph sees them
// only through a boxed function in front of each.
//
// Thread-safety: none; used while the kernels are installed. Errors: c10::Error.
#pragma once
#include <torch/library.h>

#include <string>
#include <vector>

namespace spillway::kernels {

class OwnKernels {
 public:
  explicit OwnKernels(torch::Library& library) : library_(library) {}

  template <class Function>
  void impl(const char* name, Function function) {
    library_.impl(name, function);
    names_.emplace_back(name);
  }
  const std::vector<std::string>& names() const { return names_; }

 private:
  torch::Library& library_;
  std::vector<std::string> names_;
};

}  // namespace spillway::kernels
