// An optimizer's mathematics, apart from where its states lie and in which numbers the weights are kept.
//
// trainer/optimizer/optimizer.h cuts parameters into tiles, brings the states of a tile to the parameter's
// device, and has a rule update it. What numbers of a tile have to do with each other does not depend
// on where the states lie, and so the bits do not.
//
// Thread-safety: one thread. Ownership: a rule owns its scratch; tiles are views. Errors: LibTorch's
// exceptions, from `reserve` and `prepare` alone: `apply` allocates no device memory.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/libtorch.h"

namespace spillway::trainer {

// One step of the optimizer.
struct Update {
  uint64_t number = 1;  // of updates so far, this one included
  double rate = 0;      // the learning rate
  double scale = 1;     // what gradients are multiplied by: the clipping, and the loss scale taken back
};

// A parameter as the optimizer sees it, on its device.
struct Updated {
  size_t index = 0;
  std::function<at::Tensor()> value;                // what the model computes with; may allocate
  at::Tensor gradient;                              // accumulated, not yet scaled
  const std::vector<at::Tensor>* states = nullptr;  // that belong to it as a whole; on any device
};

struct Tile {
  size_t parameter = 0;
  int64_t begin = 0;               // of its elements
  at::Tensor value;                // [elements], floats; written; not defined: the weights are the values
  at::Tensor gradient;             // [elements], floats, or bfloat16 beside such weights; scratch afterwards
  std::vector<at::Tensor> states;  // that are read in tiles; written
  bool decays = false;
  at::Tensor weights{};  // [elements], of fewer bits: what the value is rounded into; not defined: nothing
  uint64_t chance = 0;   // with which weights are rounded that are the values (rounding/chance.h)
};

class UpdateRule {
 public:
  virtual ~UpdateRule() = default;
  // Room to compute in, for tiles of at most `elements` on `device`.
  virtual void reserve(at::Device, int64_t /*elements*/) {}
  // Sums over a whole parameter that its tiles will need. May be repeated; changes no state.
  virtual void prepare(const Update&, const Updated&) {}
  virtual bool prepares() const { return false; }  // whether `prepare` does anything
  // Before the tiles of an update.
  virtual void begin(const Update& update) = 0;
  // Whether `apply_at_once` updates all that is not in 8 bits there. REQUIRES: reserve(device, ...).
  virtual bool works_at_once(at::Device) const { return false; }
  // All of a tile's update: scales the gradient, and rounds the value into the weights. False: there is no
  // such way here, and nothing was done.
  virtual bool apply_at_once(const Tile&) { return false; }
  // Of a value and a gradient in floats, which is scaled; leaves the weights as they are.
  virtual void apply(const Tile& tile) = 0;
  // After a parameter's tiles: writes the states that belong to it as a whole.
  virtual void finish(const Updated&) {}
  // What a person should know of how updates are computed: lines, to which a later `reserve` may add.
  virtual std::vector<std::string> remarks() const { return {}; }
};

std::unique_ptr<UpdateRule> update_rule(const TrainConfig& train, size_t parameters);

}  // namespace spillway::trainer
