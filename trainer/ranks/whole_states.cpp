#include "trainer/ranks/whole_states.h"

namespace spillway::trainer {
namespace {

constexpr uint64_t kMostStates = 8;  // of a parameter

}  // namespace

at::Tensor WholeStates::exchange(size_t parameter, size_t state) {
  const StateTensor shape = optimizer_.state_shapes(parameter)[state];
  std::vector<int64_t> bytes;
  for (const Span& section : partition_.sections(parameter))
    bytes.push_back(int64_t(part_bytes(shape, section.length)));
  const at::Tensor all = exchange_.gather_rows(optimizer_.state(parameter, state), bytes);
  return ranks_.leads() ? all.view(type_of(shape)).view(shape.sizes) : at::Tensor();
}

// What rank 0 wants is told by a sum to which the others add nothing.
at::Tensor WholeStates::of(size_t parameter, size_t state) {
  if (!is_exchanged_) return optimizer_.state(parameter, state);
  ranks_.sum(double(1 + parameter * kMostStates + state));
  return exchange(parameter, state);
}

void WholeStates::end() {
  if (is_exchanged_) ranks_.sum(0);
}

void WholeStates::serve() {
  if (!is_exchanged_) return;
  while (const auto asked = static_cast<uint64_t>(ranks_.sum(0)))
    exchange((asked - 1) / kMostStates, (asked - 1) % kMostStates);
}

}  // namespace spillway::trainer
