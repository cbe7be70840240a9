// AdamW with moments in 8 bits on a card, by the kernel and by LibTorch's operators: whether each has a
// processor's bits, and the bytes a second of each beside those of a copy on the card.
//
// bench_quantized_gpu [MILLIONS OF NUMBERS, 64]: prints a line of JSON. Exit code 1 where the bits differ, 2
// after an error, 3 without a card.
#include <c10/cuda/CUDAFunctions.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <nlohmann/json.hpp>

#include "trainer/optimizer/quantization/dynamic_map.h"
#include "trainer/optimizer/rules/rules.h"
#include "trainer/plan/optimizer_state.h"
#include "trainer/runtime/rates.h"

namespace {

using namespace spillway::trainer;

constexpr int kTimes = 16;
constexpr double kBytes = 8 + 4 + 4 + 16.0 / double(kQuantizationBlock);  // of a number: see bench_quantized

struct State {
  explicit State(int64_t elements) {
    at::manual_seed(3);
    const int64_t blocks = (elements + kQuantizationBlock - 1) / kQuantizationBlock;
    value = at::randn({elements});
    gradient = at::randn({elements}) * at::pow(10.0, -6 * at::rand({elements}));
    states = {at::full({elements}, kSignedZero, at::kByte), at::zeros({blocks}),
              at::zeros({elements}, at::kByte), at::zeros({blocks})};
  }
  State to(at::Device device) const {
    State other = *this;
    other.value = value.to(device, false, true), other.gradient = gradient.to(device, false, true);
    for (at::Tensor& state : other.states) state = state.to(device, false, true);
    return other;
  }
  Tile tile(int64_t begin, int64_t elements) const {
    const int64_t block = begin / kQuantizationBlock,
                  blocks = (elements + kQuantizationBlock - 1) / kQuantizationBlock;
    return {.parameter = 0,
            .begin = begin,
            .value = value.narrow(0, begin, elements),
            .gradient = gradient.narrow(0, begin, elements),
            .states = {states[0].narrow(0, begin, elements), states[1].narrow(0, block, blocks),
                       states[2].narrow(0, begin, elements), states[3].narrow(0, block, blocks)},
            .decays = true};
  }
  Tile whole() const { return tile(0, value.numel()); }

  at::Tensor value, gradient;
  std::vector<at::Tensor> states;
};

// Differing numbers of the value and of the states.
int64_t apart(const State& one, const State& other) {
  const auto count = [](const at::Tensor& a, const at::Tensor& b) {
    return a.cpu().ne(b.cpu()).sum().item().toLong();
  };
  int64_t differing = count(one.value, other.value);
  for (size_t i = 0; i < one.states.size(); ++i) differing += count(one.states[i], other.states[i]);
  return differing;
}

double seconds_of(const std::function<void()>& work) {
  using Clock = std::chrono::steady_clock;
  work();
  c10::cuda::device_synchronize();
  const auto start = Clock::now();
  for (int i = 0; i < kTimes; ++i) work();
  c10::cuda::device_synchronize();
  return std::chrono::duration<double>(Clock::now() - start).count() / kTimes;
}

class Trial {
 public:
  explicit Trial(int64_t elements) : elements_(elements) {
    rule_.reserve(card_, elements);
    rule_.reserve_operators(card_, kTileElements);
  }

  nlohmann::ordered_json run() {
    nlohmann::ordered_json result{{"benchmark", "quantized_gpu"},
                                  {"simulated", on_simulated_card()},
                                  {"numbers", elements_},
                                  {"remark", rule_.remark()},
                                  {"kernel_apart", apart_from_host([&](State& of) { by_kernel(of); })},
                                  {"operators_apart", apart_from_host([&](State& of) { by_operators(of); })}};
    State state = State(elements_).to(card_);
    at::Tensor copy = at::empty_like(state.value);
    const double bytes = kBytes * double(elements_);
    result["kernel_bytes_per_second"] = bytes / seconds_of([&] { by_kernel(state); });
    result["operators_bytes_per_second"] = bytes / seconds_of([&] { by_operators(state); });
    result["copy_bytes_per_second"] = 8.0 * double(elements_) / seconds_of([&] { copy.copy_(state.value); });
    return result;
  }

 private:
  void by_kernel(State& state) { rule_.apply(state.whole()); }
  // The gradient is scratch of theirs.
  void by_operators(State& state) {
    for (int64_t begin = 0; begin < elements_; begin += kTileElements)
      rule_.apply_by_operators(state.tile(begin, std::min(kTileElements, elements_ - begin)));
  }
  // After three updates of the same state.
  int64_t apart_from_host(const std::function<void(State&)>& update) {
    State host(elements_), there = host.to(card_);
    for (uint64_t number = 1; number <= 3; ++number) {
      rule_.begin({.number = number, .rate = 1e-2});
      there.gradient.copy_(host.gradient);
      update(there);
      rule_.apply(host.whole());
    }
    return apart(host, there);
  }

  const at::Device card_{at::kCUDA, 0};
  const int64_t elements_;
  QuantizedAdamWRule rule_{{.weight_decay = 0.1}};
};

int run(int64_t millions) {
  if (c10::cuda::device_count() == 0) return std::fputs("there is no card\n", stderr), 3;
  const at::NoGradGuard no_grad;
  const nlohmann::ordered_json result = Trial((millions << 20) + 77).run();
  std::puts(result.dump().c_str());
  return result["kernel_apart"] == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc > 1 ? std::clamp(std::atoi(argv[1]), 1, 1024) : 64);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
