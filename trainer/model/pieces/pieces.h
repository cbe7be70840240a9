// A forward in pieces, and its backward piece by piece in the other direction.
//
// Where a forward goes on to another device it stops twice: a piece that computes ends, and then one that
// only copies. At each stop all that later pieces read, x and the inputs that layers share, is cut off the
// graph: they go on from leaves. The backward of a piece begins with the gradients of the leaves that it
// left. The sums are those of the whole graph, term by term: each leaf is read in one piece.
//
// Thread-safety: one thread. Ownership: the graphs of all pieces that have had no backward yet. Errors:
// LibTorch's exceptions.
#pragma once
#include <coroutine>
#include <vector>

#include "trainer/libtorch.h"

namespace spillway::trainer {

class SharedInput;

class Pieces {
 public:
  Pieces() = default;
  Pieces(const Pieces&) = delete;

  // `co_await` it in a passage; without pieces it does nothing.
  struct Stop {
    Pieces* pieces;
    at::Tensor* x;
    bool await_ready() const { return pieces == nullptr; }
    void await_suspend(std::coroutine_handle<> passage) const {
      pieces->cut(x);
      pieces->stopped_ = passage;
    }
    void await_resume() const {}
  };

  void start(std::coroutine_handle<> passage) { stopped_ = passage; }
  void resume() { stopped_.resume(); }

  void share(SharedInput* input) { shared_.push_back(input); }
  void unshare(SharedInput* input) { std::erase(shared_, input); }

  // All but the last piece, which ends in the loss.
  bool all_undone() const { return cuts_.empty(); }
  // The backward of the last one that has had none.
  void undo();

 private:
  struct Cut {
    at::Tensor from, to;  // of two graphs
  };
  void cut(at::Tensor* x);
  void cut_off(at::Tensor* tensor);

  std::coroutine_handle<> stopped_;
  std::vector<SharedInput*> shared_;
  std::vector<std::vector<Cut>> cuts_;  // by piece
};

}  // namespace spillway::trainer
