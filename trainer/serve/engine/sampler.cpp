#include "trainer/serve/engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <stdexcept>

#include "trainer/data/mix.h"

namespace spillway::trainer::serve {
namespace {

size_t first_of_largest(std::span<const float> logits) {
  size_t best = 0;
  bool numbers = true;
  for (size_t i = 0; i < logits.size(); ++i) {
    numbers &= std::isfinite(logits[i]) || logits[i] < 0;  // minus infinity is a token that never comes
    if (logits[i] > logits[best]) best = i;
  }
  if (!numbers || !std::isfinite(logits[best]))
    throw std::domain_error("the model's logits are not numbers: are its weights those of its config.json?");
  return best;
}

// The likelier token first, and of equally likely ones the first.
struct Likelier {
  std::span<const float> logits;
  bool operator()(uint32_t a, uint32_t b) const {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  }
};

double uniform(uint64_t seed, uint64_t place) {
  constexpr uint64_t kStream = 0x73616d706c65;  // apart from all else that draws from the seed
  return double(mix(mix(seed, kStream), place) >> 11) * 0x1p-53;
}

// The first of `tokens` at which the sum of the weights passes a share of the whole.
int64_t drawn(std::span<const uint32_t> tokens, std::span<const double> weights, double share) {
  double left = share * std::accumulate(weights.begin(), weights.end(), 0.0);
  for (size_t i = 0; i < tokens.size(); ++i)
    if ((left -= weights[i]) < 0) return tokens[i];
  return tokens.back();
}

// How many of the first tokens, likeliest first, make up the share; they are then sorted.
size_t nucleus(std::vector<uint32_t>* tokens, const Likelier& likelier, double top_p,
               const std::function<double(uint32_t)>& weight) {
  double all = 0, sum = 0;
  for (const uint32_t token : *tokens) all += weight(token);
  const auto later = [&](uint32_t a, uint32_t b) { return likelier(b, a); };
  auto end = tokens->end();
  std::make_heap(tokens->begin(), end, later);
  while (end != tokens->begin() && (end == tokens->end() || sum < top_p * all)) {
    std::pop_heap(tokens->begin(), end--, later);
    sum += weight(*end);
  }
  std::reverse(tokens->begin(), tokens->end());
  return static_cast<size_t>(tokens->end() - end);
}

}  // namespace

int64_t choose(std::span<const float> logits, const Sampling& sampling, uint64_t place) {
  const size_t best = first_of_largest(logits);
  if (sampling.temperature == 0) return int64_t(best);
  const Likelier likelier{logits};
  std::vector<uint32_t> tokens(logits.size());
  std::iota(tokens.begin(), tokens.end(), 0u);
  if (sampling.top_k > 0 && sampling.top_k < tokens.size()) {
    std::nth_element(tokens.begin(), tokens.begin() + sampling.top_k, tokens.end(), likelier);
    tokens.resize(sampling.top_k);
    std::sort(tokens.begin(), tokens.end(), likelier);
  }
  const double largest = logits[best];
  const auto weight = [&](uint32_t token) {
    return std::exp((double(logits[token]) - largest) / sampling.temperature);
  };
  if (sampling.top_p < 1) tokens.resize(nucleus(&tokens, likelier, sampling.top_p, weight));
  std::vector<double> weights;
  weights.reserve(tokens.size());
  for (const uint32_t token : tokens) weights.push_back(weight(token));
  return drawn(tokens, weights, uniform(sampling.seed, place));
}

std::vector<TokenChance> chances(std::span<const float> logits, int64_t token, uint32_t count) {
  const double largest = logits[first_of_largest(logits)];
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double(logit) - largest);
  const double whole = largest + std::log(sum);
  std::vector<uint32_t> tokens(logits.size());
  std::iota(tokens.begin(), tokens.end(), 0u);
  const size_t shown = std::min<size_t>(count, tokens.size());
  std::partial_sort(tokens.begin(), tokens.begin() + long(shown), tokens.end(), Likelier{logits});
  std::vector<TokenChance> all{{token, float(logits[size_t(token)] - whole)}};
  for (size_t i = 0; i < shown; ++i) all.push_back({tokens[i], float(logits[tokens[i]] - whole)});
  return all;
}

}  // namespace spillway::trainer::serve
