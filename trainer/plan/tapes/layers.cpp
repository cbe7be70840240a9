#include <utility>

#include "trainer/plan/tapes/operators.h"

namespace spillway::trainer {
namespace {

using Tensor = Tape::Tensor;
using Tensors = std::vector<Tensor>;

// inputs: x, and what the part reads.
Tensor with_part(Tape* tape, const TapePass& pass, const TapePart& part, const Tensors& inputs) {
  tape->as(part.part == Part::kMlp ? Kind::kMlp : Kind::kAttention);
  tape->begin_part();
  return TapeOperators::at(tape, pass, inputs[0]).added(inputs[0], part.adds(tape, pass, inputs));
}

// inputs: x, and what the parts read, one after the other. `again` says which part is computed again.
template <typename Again>
Tensor in_parts(Tape* tape, const TapePass& pass, TapeParts parts, const Tensors& inputs,
                const Again& again) {
  Tensor x = inputs[0];
  auto next = inputs.begin() + 1;
  tape->hold(x);
  for (const TapePart& part : parts) {
    Tensors given{x};
    given.insert(given.end(), next, next + part.reads);
    next += part.reads;
    const Tape::Layer run = [pass, part](Tape* on, const Tensors& of) {
      return with_part(on, pass, part, of);
    };
    const Tensor out = again(part.part) ? tape->run_again(run, given) : run(tape, given);
    tape->drop(x);
    x = out;
  }
  return x;
}

Tensors with(Tensor x, Tensors reads) {
  reads.insert(reads.begin(), x);
  return reads;
}

// inputs: x, and what the layers read, one after the other.
Tensor in_layers(Tape* tape, const Tape::Layer& layer, uint32_t count, const Tensors& inputs) {
  const auto reads = static_cast<ptrdiff_t>((inputs.size() - 1) / count);
  Tensor x = inputs[0];
  auto next = inputs.begin() + 1;
  tape->hold(x);
  for (uint32_t i = 0; i < count; ++i, next += reads) {
    Tensors given{x};
    given.insert(given.end(), next, next + reads);
    const Tensor out = tape->run_again(layer, given);
    tape->drop(x);
    x = out;
  }
  return x;
}

// `count` layers that are computed again together, and then each by itself.
Tensor again(Tape* tape, const TapePass& pass, TapeParts parts, uint32_t count, const Tensors& inputs) {
  const Tape::Layer layer = [pass, parts](Tape* on, const Tensors& of) {
    return in_parts(on, pass, parts, of, [](Part) { return false; });
  };
  if (count == 1) return tape->run_again(layer, inputs);
  return tape->run_again(
      [layer, count](Tape* on, const Tensors& of) { return in_layers(on, layer, count, of); }, inputs);
}

}  // namespace

Tape::Tensor run_layers(Tape* tape, const TapePass& pass, uint32_t first, uint32_t count, Tape::Tensor x,
                        const std::vector<Tape::Tensor>& reads, TapeParts parts) {
  const uint32_t layers = pass.model.all_layers();
  Tensors last = reads;  // where the last reader read them
  for (const Tensor read : last) tape->hold(read);
  const uint32_t end = std::min(first + count, pass.stage.end);
  for (uint32_t layer = std::max(first, pass.stage.first); layer < end;) {
    const uint32_t device = pass.device_of(layer),
                   next = pass.training ? pass.plan.segment_end(layer, end) : layer + 1;
    const bool cuts = pass.in_pieces && device != tape->device_of(x);
    if (cuts) tape->cut(with(x, last));
    Tensors inputs{tape->to(device, x)};
    tape->drop(x);
    for (uint32_t member = layer; member < next; ++member)
      for (Tensor& read : last) {
        if (tape->device_of(read) != device) {
          const Tensor copy = tape->to(device, read);
          tape->drop(read);
          tape->share(copy);
          read = copy;
        }
        inputs.push_back(read);
      }
    if (cuts) tape->cut(with(inputs[0], last));
    tape->on(device, Kind::kAttention);
    tape->begin_layer();
    x = pass.training && pass.plan.recompute.contains(layer)
            ? again(tape, pass, parts, next - layer, inputs)
            : in_parts(tape, pass, parts, inputs,
                       [&](Part part) { return pass.training && pass.plan.recomputes(layer, part); });
    std::optional<uint32_t> until;
    if (pass.plan.offloads(layer, next, layers)) until = pass.plan.offloaded_until(layer, layers);
    tape->end_layer(next, until, pass.home_of(device), {inputs.begin() + 1, inputs.end()},
                    pass.offload_least_bytes);
    tape->drop(inputs[0]);
    layer = next;
  }
  const bool cuts = pass.in_pieces && tape->device_of(x) != 0;
  if (cuts) tape->cut(with(x, last));
  const Tensor home = tape->to(0, x);
  tape->drop(x);
  if (cuts) tape->cut({home});
  for (const Tensor read : last) tape->drop(read);
  return home;
}

}  // namespace spillway::trainer
