#include <map>
#include <utility>

#include "trainer/plan/tapes/tapes.h"

namespace spillway::trainer {

Tape::Tensor run_layers(Tape* tape, const TapePass& pass, uint32_t first, uint32_t count, Tape::Tensor x,
                        const std::vector<Tape::Tensor>& reads, const Tape::Layer& layer) {
  std::map<std::pair<uint32_t, size_t>, Tape::Tensor> copies;  // of what is read, by device
  for (uint32_t number = first; number < first + count; ++number) {
    const uint32_t device = pass.device_of(number);
    std::vector<Tape::Tensor> inputs{tape->to(device, x)};
    for (size_t i = 0; i < reads.size(); ++i) {
      const auto [copy, is_new] = copies.try_emplace({device, i});
      if (is_new) copy->second = tape->to(device, reads[i]), tape->share(copy->second);
      inputs.push_back(copy->second);
    }
    tape->on(device, Kind::kAttention);
    const bool again = pass.training && pass.plan.recompute.contains(number);
    const Tape::Tensor out = again ? tape->run_again(layer, inputs) : layer(tape, inputs);
    tape->drop(inputs[0]);
    tape->drop(x);
    x = out;
  }
  for (const auto& [key, copy] : copies) tape->drop(copy);
  const Tape::Tensor home = tape->to(0, x);
  tape->drop(x);
  return home;
}

}  // namespace spillway::trainer
