#include "trainer/model/forward.h"

#include "trainer/model/operators.h"
#include "trainer/plan/parameters/parameter_table.h"
#include "trainer/plan/schedule.h"
#include "trainer/step/random_state.h"

namespace spillway::trainer {
namespace {

// Weights, and what other layers read too.
std::vector<at::Tensor> tensors_that_stay(const std::vector<BoundLayer>& group) {
  std::vector<at::Tensor> stay;
  for (const BoundLayer& layer : group)
    for (const BoundPart& part : layer) {
      part.weights.append_to(&stay);
      stay.insert(stay.end(), part.reads.begin(), part.reads.end());
    }
  return stay;
}

}  // namespace

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
  uint32_t unit = first_unit(model, layer);
  for (const LayerPart& part : parts) {
    const ParameterKeys::Group& group = keys.layers[layer].parts.at(part.part);
    result.push_back({part.part,
                      part.function,
                      {group.keys, parameters.slice(group.first, group.keys.size())},
                      {next, next + part.reads},
                      {parameters.uses(), unit++}});
    next += part.reads;
  }
  return result;
}

at::Tensor Forward::run_parts(uint32_t layer, BoundLayer bound, at::Tensor x) const {
  const LayerSettings settings{&model, training};
  for (BoundPart& part : bound)
    x = plan.recomputes(layer, part.part) ? recomputed(settings, x, {{std::move(part)}})
                                          : trainer::run(settings, std::move(part), std::move(x));
  return x;
}

at::Tensor Forward::computed(uint32_t layer, std::vector<BoundLayer> group, const at::Tensor& x) const {
  return plan.recompute.contains(layer) ? recomputed({&model, training}, x, std::move(group))
                                        : run_parts(layer, std::move(group[0]), x);
}

at::Tensor Forward::run_group(uint32_t layer, std::vector<BoundLayer> group, const at::Tensor& x) const {
  if (activations == nullptr) return computed(layer, std::move(group), x);
  const auto end = layer + static_cast<uint32_t>(group.size());
  const uint32_t layers = model.all_layers();
  std::optional<uint32_t> until;
  if (plan.offloads(layer, end, layers)) until = plan.offloaded_until(layer, layers);
  ActivationPass::Layer kept(*activations, device_of(layer), until, tensors_that_stay(group));
  at::Tensor result = computed(layer, std::move(group), x);
  kept.end(end, result);
  return result;
}

Passage<at::Tensor> Forward::run(uint32_t first, uint32_t count, LayerParts parts, at::Tensor x,
                                 Reads reads) const {
  const uint32_t end = std::min(first + count, stage.end);
  for (uint32_t layer = std::max(first, stage.first); layer < end;) {
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
    x = run_group(layer, std::move(group), x);
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
