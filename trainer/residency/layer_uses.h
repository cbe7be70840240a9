// Who is told when a layer's weights are used: by a forward, and by the backward of what it recorded.
//
// A backward's use begins where the gradient of the layer's output is there, and ends where those of all that
// the layer was given are: behind them no operator of the layer reads a weight. Both are operators that hand
// on what they are given. A layer that is computed again uses its weights from then until its backward is
// done.
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
  virtual bool wants(uint32_t layer) const = 0;  // to be told of it
  virtual void begin(uint32_t layer, Pass pass) = 0;
  virtual void end(uint32_t layer, Pass pass) = 0;
};

// The layer, and who is told of it, if anyone is.
struct UsedLayer {
  LayerUses* uses = nullptr;
  uint32_t layer = 0;

  UsedLayer() = default;
  UsedLayer(LayerUses* told, uint32_t number)
      : uses(told != nullptr && told->wants(number) ? told : nullptr), layer(number) {}
  void begin(Pass pass) const {
    if (uses != nullptr) uses->begin(layer, pass);
  }
  void end(Pass pass) const {
    if (uses != nullptr) uses->end(layer, pass);
  }
};

// In place of what the layer is given, and of its output.
void end_backward_before(const UsedLayer& layer, std::vector<at::Tensor*> inputs);
at::Tensor begin_backward_behind(const UsedLayer& layer, const at::Tensor& output);

}  // namespace spillway::trainer
