// The weights that a training begins with, in floats on the host, one at a time: the host never holds a whole
// model.
//
// Thread-safety: one thread. Ownership: what it was made of. Errors: those of the source. In the order of the
// parameters each is made or read once; going back begins again.
#pragma once
#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

#include "trainer/libtorch.h"

namespace spillway::trainer {

class InitialValues {
 public:
  using Value = std::function<at::Tensor(size_t index)>;

  InitialValues(size_t size, Value value) : size_(size), value_(std::move(value)) {}
  InitialValues(const std::vector<at::Tensor>& all)  // NOLINT: such a list is one
      : size_(all.size()), value_([all](size_t index) { return all[index]; }) {}

  size_t size() const { return size_; }
  at::Tensor operator[](size_t index) const { return value_(index); }

 private:
  size_t size_;
  Value value_;
};

}  // namespace spillway::trainer
