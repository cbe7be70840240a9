// The choice of the next token from the model's logits.
//
// A draw is a function of the seed and of the place of the token alone, so that a sequence that is computed
// again, or beside others, has the same tokens as far as its logits have the same order and size.
//
// Thread-safety: pure functions. Errors: std::domain_error where a logit is no number.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace spillway::trainer::serve {

// Of the logits over the temperature, the `top_k` largest (0: all), and of these the fewest whose
// probabilities add up to `top_p`. Temperature 0: the first of the largest.
struct Sampling {
  double temperature = 1, top_p = 1;
  uint32_t top_k = 0;
  uint64_t seed = 0;
};

int64_t choose(std::span<const float> logits, const Sampling& sampling, uint64_t place);

struct TokenChance {
  int64_t token = 0;
  float log_probability = 0;
};
// Of the token, and then the `count` likeliest, all without temperature.
std::vector<TokenChance> chances(std::span<const float> logits, int64_t token, uint32_t count);

}  // namespace spillway::trainer::serve
