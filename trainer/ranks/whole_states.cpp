#include "trainer/ranks/whole_states.h"

namespace spillway::trainer {
namespace {

constexpr uint64_t kMostStates = 8;             // of a parameter
constexpr uint64_t kWeights = kMostStates - 1;  // in the place of a state: what the model computes with

}  // namespace

at::Tensor WholeStates::exchange_weights(size_t parameter) {
  const Parameters::Stored whole = parameters_.stored(parameter).front();
  std::vector<int64_t> bytes;
  for (const Span& section : partition_.sections(parameter))
    bytes.push_back(section.length * int64_t(c10::elementSize(whole.type)));
  const at::Tensor all = exchange_.gather_rows(parameters_.read_share(parameter), bytes);
  return ranks_.leads() ? all.view(whole.type).view(whole.sizes) : at::Tensor();
}

at::Tensor WholeStates::exchange(size_t parameter, size_t state) {
  if (state == kWeights) return exchange_weights(parameter);
  const StateTensor shape = optimizer_.state_shapes(parameter)[state];
  std::vector<int64_t> bytes;
  for (const Span& section : partition_.sections(parameter))
    bytes.push_back(int64_t(part_bytes(shape, section.length)));
  const at::Tensor all = exchange_.gather_rows(optimizer_.state(parameter, state), bytes);
  return ranks_.leads() ? all.view(type_of(shape)).view(shape.sizes) : at::Tensor();
}

// What rank 0 wants is told by a sum to which the others add nothing.
at::Tensor WholeStates::of(size_t parameter, size_t state) {
  return is_exchanged() ? ask(parameter, state) : optimizer_.state(parameter, state);
}

at::Tensor WholeStates::stored(size_t parameter, size_t which) {
  return parameters_.is_shared(parameter) ? ask(parameter, kWeights)
                                          : parameters_.read_stored(parameter, which);
}

at::Tensor WholeStates::ask(size_t parameter, size_t state) {
  ranks_.sum(double(1 + parameter * kMostStates + state));
  return exchange(parameter, state);
}

uint64_t WholeStates::hash() {
  if (!weights_are_exchanged()) return parameters_.hash();
  const auto read = [this](size_t index, size_t which) { return stored(index, which); };
  const uint64_t mine = ranks_.leads() ? parameters_.hash(read) : 0;
  ranks_.leads() ? end() : serve();
  const double high = ranks_.sum(double(mine >> 32)), low = ranks_.sum(double(mine & 0xffffffffu));
  return uint64_t(high) << 32 | uint64_t(low);
}

void WholeStates::end() {
  if (is_exchanged()) ranks_.sum(0);
}

void WholeStates::serve() {
  if (!is_exchanged()) return;
  while (const auto asked = static_cast<uint64_t>(ranks_.sum(0)))
    exchange((asked - 1) / kMostStates, (asked - 1) % kMostStates);
}

}  // namespace spillway::trainer
