// What a stage of a pipeline over ranks gets from its neighbours in a step and gives them: of each
// micro-batch x and, back, its gradient.
//
// Each message passes once a step, whatever fails in between: the neighbours do not send it again, nor take
// it twice. What came is kept until its micro-batch is done, so that a stage computes one again by itself.
// Messages of a direction are those of micro-batch 0, 1, 2, ...
//
// Thread-safety: one thread. Ownership: what came. Errors: LibTorch's and c10d's exceptions; where memory for
// a message runs out, it has not been taken, and the next call takes it; BrokenRound where c10d has none for
// it.
#pragma once
#include <functional>
#include <map>

#include "trainer/ranks/broken_round.h"
#include "trainer/ranks/stages/mesh.h"

namespace spillway::trainer {

class StageMessages {
 public:
  // x: [rows, tokens, width] of `type`.
  StageMessages(const Mesh& mesh, at::Device device, at::ScalarType type, int64_t tokens, int64_t width);

  // `drain` has room for slices of so many rows, or of more.
  void reserve(int64_t rows);
  // Messages pass in slices of so many rows, the same on all stages: `drain` needs no more than one of them.
  // REQUIRES: as many are reserved.
  void pass_in_slices(int64_t rows) { slice_ = rows; }
  // No more than so many rows are reserved.
  void give_back_beyond(int64_t rows);
  // Of a step, or of an evaluation: nothing has passed. What was sent before has gone.
  void begin();
  at::Tensor input(uint32_t micro_batch, int64_t rows);  // a leaf of a new graph
  void give_output(uint32_t micro_batch, const at::Tensor& x);
  at::Tensor gradient(uint32_t micro_batch, int64_t rows);
  void give_gradient(uint32_t micro_batch, const at::Tensor& of_input);
  void done(uint32_t micro_batch);
  // The messages that are left of `count` micro-batches with so many rows, worth nothing: the neighbours do
  // not wait for this stage. `backward`: gradients pass too. Allocates no device memory.
  void drain(uint32_t count, bool backward, const std::function<int64_t(uint32_t)>& rows_of);

 private:
  // What came of one direction, and what went.
  struct Passed {
    uint32_t came = 0, went = 0;  // micro-batches
    std::map<uint32_t, at::Tensor> kept{};
  };
  at::Tensor room(int64_t rows) const;
  at::Tensor taken(Passed* passed, Ranks& from, uint32_t micro_batch, int64_t rows) const;
  void give(Passed* passed, Ranks& to, uint32_t micro_batch, const at::Tensor& x) const;
  void send(Ranks& to, const at::Tensor& x) const;
  void receive(Ranks& from, const at::Tensor& x) const;
  void drain(Passed* passed, Ranks* from, Ranks* to, uint32_t micro_batch, int64_t rows) const;

  const Stage stage_;
  const StageLink before_, after_;
  const int64_t tokens_, width_;
  const at::TensorOptions options_;
  int64_t slice_ = 1;
  at::Tensor spare_;  // what `drain` sends, and takes
  Passed forward_, backward_;
};

}  // namespace spillway::trainer
