#include "trainer/model/forward.h"

#include "trainer/model/operators.h"
#include "trainer/plan/parameters/parameter_table.h"
#include "trainer/step/random_state.h"

namespace spillway::trainer {

ParameterKeys::ParameterKeys(const Architecture& model) : layers(model.all_layers()) {
  const std::vector<Parameter> table = parameter_table(model);
  for (size_t i = 0; i < table.size(); ++i) {
    if (table[i].layer < 0) {
      outer.push_back(table[i].key);
      continue;
    }
    Layer& layer = layers[static_cast<size_t>(table[i].layer)];
    if (layer.count++ == 0) layer.first = i;
    Group& part = layer.parts[table[i].part];
    if (part.keys.empty()) part.first = i;
    part.keys.push_back(table[i].key);
  }
}

at::Tensor Forward::with_dropout(const at::Tensor& x) const {
  return dropped(x, model.dropout, training);
}

BoundLayer Forward::bound(uint32_t layer, LayerParts parts, const Reads& reads) const {
  const std::vector<at::Tensor> given = reads(device_of(layer));
  auto next = given.begin();
  BoundLayer result;
  for (const LayerPart& part : parts) {
    const ParameterKeys::Group& group = keys.layers[layer].parts.at(part.part);
    result.push_back({part.part,
                      part.function,
                      {group.keys, parameters.slice(group.first, group.keys.size())},
                      {next, next + part.reads}});
    next += part.reads;
  }
  return result;
}

Passage<at::Tensor> Forward::run(uint32_t first, uint32_t count, LayerParts parts, at::Tensor x,
                                 Reads reads) const {
  const LayerSettings settings{&model, training};
  for (uint32_t layer = first, end = first + count; layer < end;) {
    std::vector<BoundLayer> group;
    if (const at::Device device = device_of(layer); x.device() != device) {
      co_await Pieces::Stop{pieces, &x};
      x = x.to(device);
      if (pieces != nullptr) reads(device);  // crosses with x: computing waits for no other device
      co_await Pieces::Stop{pieces, &x};
    }
    std::optional<BorrowedRandomState> random;
    if (draws()) random.emplace(outer().device(), device_of(layer));
    const uint32_t next = plan.segment_end(layer, end);
    for (uint32_t member = layer; member < next; ++member) group.push_back(bound(member, parts, reads));
    if (plan.recompute.contains(layer)) {
      x = recomputed(settings, x, std::move(group));
    } else {
      for (const BoundPart& part : group[0])
        x = plan.recomputes(layer, part.part) ? recomputed(settings, x, {{part}})
                                              : trainer::run(settings, part, x);
    }
    layer = next;
  }
  if (const at::Device home = outer().device(); x.device() != home) {
    co_await Pieces::Stop{pieces, &x};
    x = x.to(home);
    co_await Pieces::Stop{pieces, &x};
  }
  co_return std::move(x);
}

}  // namespace spillway::trainer
