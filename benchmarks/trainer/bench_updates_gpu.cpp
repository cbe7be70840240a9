// AdamW with moments in 8 bits and in 32 on a card, by the kernel and by LibTorch's operators: whether each
// has a processor's bits, and the bytes a second of each beside those of a copy on the card. The bits are
// compared after updates of usual numbers, and of those at the edges of what a float holds; what is no number
// is the same whatever its bits.
//
// bench_updates_gpu [MILLIONS OF NUMBERS, 64]: prints a line of JSON. Exit code 1 where a kernel's bits
// differ, 2 after an error, 3 without a card.
#include <c10/cuda/CUDAFunctions.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "trainer/optimizer/quantization/dynamic_map.h"
#include "trainer/optimizer/rules/rules.h"
#include "trainer/plan/parameters/optimizer_state.h"
#include "trainer/runtime/rates.h"

namespace {

using namespace spillway::trainer;

constexpr int kTimes = 16;
constexpr int64_t kHardElements = (1 << 20) + 77;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

using Make = std::function<at::Tensor(int64_t elements)>;
struct Case {
  const char* name;
  Make gradient, scale;  // of each number, and of each block
};

at::Tensor powers(int64_t elements, double low, double high) {
  return at::pow(10.0, low + (high - low) * at::rand({elements}, at::kDouble)).to(at::kFloat);
}
Make positive(double low, double high) {
  return [=](int64_t elements) { return powers(elements, low, high); };
}
Make sized(double low, double high) {
  return [=](int64_t elements) {
    return powers(elements, low, high) * (2 * at::randint(2, {elements}, at::kFloat) - 1);
  };
}
Make all(float what) {
  return [=](int64_t elements) { return at::full({elements}, what, at::kFloat); };
}
// One in a hundred.
Make some(float what) {
  return [=](int64_t elements) {
    return sized(-4, 0)(elements).masked_fill_(at::rand({elements}) < 0.01, what);
  };
}

std::vector<Case> hard_cases() {
  return {{"Random", sized(-6, 0), positive(-6, 0)},
          {"Zero", all(0), all(0)},
          {"NegativeZero", all(-0.0f), all(0)},
          {"ZeroGradient", all(0), positive(-6, 0)},
          {"Subnormal", sized(-44, -39), positive(-44, -39)},
          {"Tiny", sized(-30, -20), positive(-38, -20)},
          {"Huge", sized(10, 38), positive(10, 38)},
          {"Infinite", some(kInfinity), positive(-3, 0)},
          {"NegativeInfinite", some(-kInfinity), positive(-3, 0)},
          {"None", some(NAN), positive(-3, 0)},
          {"ScaleInfinite", sized(-6, 0), all(kInfinity)},
          {"ScaleIsNone", sized(-6, 0), all(NAN)}};
}

struct State {
  State(int64_t elements, const Case& of) {
    at::manual_seed(3);
    value = at::randn({elements});
    value.narrow(0, 0, elements / 100).fill_(-0.0f);
    gradient = of.gradient(elements);
  }
  State to(at::Device device) const {
    State other = *this;
    for (at::Tensor* each : {&other.value, &other.gradient, &other.weights})
      if (each->defined()) *each = each->to(device, false, true);
    for (at::Tensor& state : other.states) state = state.to(device, false, true);
    return other;
  }

  at::Tensor value, gradient, weights;
  std::vector<at::Tensor> states;
};

const Case kUsual{"Usual", sized(-6, 1), all(0)};  // as a training begins

struct EightBits {
  using Rule = QuantizedAdamWRule;
  static constexpr const char* kName = "adamw8bit";
  static constexpr double kBytes =
      8 + 4 + 4 + 16.0 / double(kQuantizationBlock);  // of a number: see bench_quantized
  static Rule rule() { return Rule({.weight_decay = 0.1}); }

  static State state(int64_t elements, const Case& of) {
    State made(elements, of);
    const int64_t blocks = (elements + kQuantizationBlock - 1) / kQuantizationBlock;
    made.states = {at::randint(256, {elements}, at::kByte), of.scale(blocks),
                   at::randint(256, {elements}, at::kByte), of.scale(blocks)};
    if (&of == &kUsual) made.states[0].fill_(kSignedZero), made.states[2].zero_();
    return made;
  }
  static std::vector<at::Tensor> states(const State& of, int64_t begin, int64_t elements) {
    const int64_t block = begin / kQuantizationBlock,
                  blocks = (elements + kQuantizationBlock - 1) / kQuantizationBlock;
    return {of.states[0].narrow(0, begin, elements), of.states[1].narrow(0, block, blocks),
            of.states[2].narrow(0, begin, elements), of.states[3].narrow(0, block, blocks)};
  }
};

// With weights in bfloat16 beside the values.
struct ThirtyTwoBits {
  using Rule = AdamRule;
  static constexpr const char* kName = "adamw";
  static constexpr double kBytes =
      16 + 12 + 2;  // of a number: value, gradient and moments are read, the gradient is not written
  static Rule rule() { return {{.weight_decay = 0.1}, true}; }

  static State state(int64_t elements, const Case& of) {
    State made(elements, of);
    made.states = {of.gradient(elements), of.scale(elements)};
    made.weights = at::zeros({elements}, at::kBFloat16);
    return made;
  }
  static std::vector<at::Tensor> states(const State& of, int64_t begin, int64_t elements) {
    return {of.states[0].narrow(0, begin, elements), of.states[1].narrow(0, begin, elements)};
  }
};

// Numbers with other bits; what is no number has any.
int64_t apart(const at::Tensor& one, const at::Tensor& on_card) {
  const at::Tensor other = on_card.cpu();
  if (one.scalar_type() == at::kByte) return one.ne(other).sum().item().toLong();
  const at::ScalarType as = one.element_size() == 2 ? at::kShort : at::kInt;
  const at::Tensor bits = one.view(as).ne(other.view(as));
  return bits.logical_and(one.isnan().logical_and(other.isnan()).logical_not()).sum().item().toLong();
}

// Of the value and of the states.
int64_t apart(const State& one, const State& other) {
  int64_t differing = apart(one.value, other.value);
  if (one.weights.defined()) differing += apart(one.weights, other.weights);
  for (size_t i = 0; i < one.states.size(); ++i) differing += apart(one.states[i], other.states[i]);
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

template <typename Of>
class Trial {
 public:
  explicit Trial(int64_t elements) : elements_(elements) {
    rule_.reserve(card_, elements);
    rule_.reserve_operators(card_, kTileElements);
  }

  nlohmann::ordered_json run() {
    nlohmann::ordered_json result{{"remark", joined(rule_.remarks())}};
    compare("kernel", [&](State& of) { update(of); }, &result);
    compare("operators", [&](State& of) { by_operators(of); }, &result);
    State state = Of::state(elements_, kUsual).to(card_);
    const double bytes = Of::kBytes * double(elements_);
    result["kernel_bytes_per_second"] = bytes / seconds_of([&] { update(state); });
    result["operators_bytes_per_second"] = bytes / seconds_of([&] { by_operators(state); });
    return result;
  }

 private:
  static std::string joined(const std::vector<std::string>& lines) {
    std::string text;
    for (const std::string& line : lines) text += (text.empty() ? "" : "; ") + line;
    return text;
  }
  static Tile tile(const State& of, int64_t begin, int64_t elements) {
    Tile tile{.parameter = 0,
              .begin = begin,
              .value = of.value.narrow(0, begin, elements),
              .gradient = of.gradient.narrow(0, begin, elements),
              .states = Of::states(of, begin, elements),
              .decays = true,
              .weights = {}};
    if (of.weights.defined()) tile.weights = of.weights.narrow(0, begin, elements);
    return tile;
  }
  void update(State& state) {
    const Tile whole = tile(state, 0, state.value.numel());
    if (rule_.apply_at_once(whole)) return;
    rule_.apply(whole);
    if (whole.weights.defined()) whole.weights.copy_(whole.value);
  }
  // The gradient is scratch of theirs.
  void by_operators(State& state) {
    const int64_t elements = state.value.numel();
    for (int64_t begin = 0; begin < elements; begin += kTileElements) {
      const Tile part = tile(state, begin, std::min(kTileElements, elements - begin));
      rule_.apply_by_operators(part);
      if (part.weights.defined()) part.weights.copy_(part.value);
    }
  }
  // How many numbers of a way's have other bits than a processor's, in all and in the cases that have some.
  void compare(const std::string& way, const std::function<void(State&)>& update,
               nlohmann::ordered_json* result) {
    int64_t all = 0;
    auto cases = nlohmann::ordered_json::object();
    const auto count = [&](const char* name, const State& state) {
      const int64_t differing = apart_from_host(state, update);
      all += differing;
      if (differing > 0) cases[name] = differing;
    };
    count("Usual", Of::state(elements_, kUsual));
    for (const Case& of : hard_cases()) count(of.name, Of::state(std::min(elements_, kHardElements), of));
    (*result)[way + "_apart"] = all;
    (*result)[way + "_apart_in"] = cases;
  }
  // After three updates of the same state.
  int64_t apart_from_host(State host, const std::function<void(State&)>& update_there) {
    State there = host.to(card_);
    for (uint64_t number = 1; number <= 3; ++number) {
      rule_.begin({.number = number, .rate = 1e-2});
      there.gradient.copy_(host.gradient);
      update_there(there);
      update(host);
    }
    return apart(host, there);
  }

  const at::Device card_{at::kCUDA, 0};
  const int64_t elements_;
  typename Of::Rule rule_ = Of::rule();
};

double copied_bytes_per_second(int64_t elements) {
  const at::Tensor from = at::zeros({elements}, at::kCUDA), to = at::empty_like(from);
  return 8.0 * double(elements) / seconds_of([&] { to.copy_(from); });
}

int run(int64_t millions) {
  if (c10::cuda::device_count() == 0) return std::fputs("there is no card\n", stderr), 3;
  const at::NoGradGuard no_grad;
  const int64_t elements = (millions << 20) + 77;
  nlohmann::ordered_json result{{"benchmark", "updates_gpu"},
                                {"simulated", on_simulated_card()},
                                {"numbers", elements},
                                {"copy_bytes_per_second", copied_bytes_per_second(elements)}};
  result[EightBits::kName] = Trial<EightBits>(elements).run();
  result[ThirtyTwoBits::kName] = Trial<ThirtyTwoBits>(elements).run();
  std::puts(result.dump().c_str());
  return result[EightBits::kName]["kernel_apart"] == 0 && result[ThirtyTwoBits::kName]["kernel_apart"] == 0
             ? 0
             : 1;
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
