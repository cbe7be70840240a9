#include "trainer/model/forward.h"

#include "trainer/model/operators.h"
#include "trainer/plan/parameter_table.h"

namespace spillway::trainer {

ParameterKeys::ParameterKeys(const Architecture& model) : layers(model.all_layers()) {
  const std::vector<Parameter> table = parameter_table(model);
  for (size_t i = 0; i < table.size(); ++i) {
    if (table[i].layer < 0) {
      outer.push_back(table[i].key);
      continue;
    }
    Layer& layer = layers[static_cast<size_t>(table[i].layer)];
    if (layer.keys.empty()) layer.first = i;
    layer.keys.push_back(table[i].key);
  }
}

at::Tensor Forward::run(uint32_t index, LayerFunction function, const std::vector<at::Tensor>& inputs) const {
  const LayerSettings settings{&model, training};
  return recompute.contains(index) ? recomputed(function, settings, layer(index), inputs)
                                   : function(settings, layer(index), inputs);
}

at::Tensor Forward::with_dropout(const at::Tensor& x) const {
  return dropped(x, model.dropout, training);
}

}  // namespace spillway::trainer
