// What autograd keeps for a backward, given to a keeper of the trainer's own.
//
// LibTorch asks its engine for the hooks of a tensor that an operator saves; Python's engine has those of
// Python. The trainer has an engine of its own, which has those of the calling thread's keeper. It is the
// process's engine from the first keeper on.
//
// Thread-safety: a keeper has what its thread's operators save; what `keep` returned is called on autograd's
// threads. Ownership: a scope borrows its keeper; what `keep` returned lives as long as the graph. Errors:
// exceptions pass through to the operator, or to the backward.
#pragma once
#include <functional>

#include "trainer/libtorch.h"

namespace spillway::trainer {

class TensorKeeper {
 public:
  virtual ~TensorKeeper() = default;
  // Returns what gives the tensor back in the backward, once or more.
  virtual std::function<at::Tensor()> keep(const at::Tensor& tensor) = 0;
};

// While it lives, what operators of this thread save is kept by `keeper`; nullptr: by autograd, as usual.
class KeeperScope {
 public:
  explicit KeeperScope(TensorKeeper* keeper);
  KeeperScope(const KeeperScope&) = delete;
  ~KeeperScope();

 private:
  TensorKeeper* const before_;
};

}  // namespace spillway::trainer
