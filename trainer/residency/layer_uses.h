// Who is told when the weights of a layer's unit are used: by a forward, and by the backward of what it
// recorded.
//
// A backward's use begins where the gradient of the unit's output is there, and ends where those of all that
// the unit was given are: behind them no operator of the unit reads a weight. Both are operators that hand on
// what they are given.
//
// Thread-safety: told by the thread that runs the forward, and by autograd's. Ownership: borrowed; it
// outlives the backward. Errors: exceptions go through.
#pragma once
#include "trainer/libtorch.h"

namespace spillway::trainer {

enum class Pass : uint8_t { kForward, kBackward };

class LayerUses {
 public:
  virtual ~LayerUses() = default;
  virtual bool wants(uint32_t unit) const = 0;  // to be told of it
  virtual void begin(uint32_t unit, Pass pass) = 0;
  virtual void end(uint32_t unit, Pass pass) = 0;
};

// The unit, and who is told of it, if anyone is.
struct UsedUnit {
  LayerUses* uses = nullptr;
  uint32_t unit = 0;

  UsedUnit() = default;
  UsedUnit(LayerUses* told, uint32_t number)
      : uses(told != nullptr && told->wants(number) ? told : nullptr), unit(number) {}
  void begin(Pass pass) const {
    if (uses != nullptr) uses->begin(unit, pass);
  }
  void end(Pass pass) const {
    if (uses != nullptr) uses->end(unit, pass);
  }
};

// In place of what the unit is given, and of its output.
void end_backward_before(const UsedUnit& unit, std::vector<at::Tensor*> inputs);
at::Tensor begin_backward_behind(const UsedUnit& unit, const at::Tensor& output);

}  // namespace spillway::trainer
