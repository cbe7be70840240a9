#include "trainer/serve/engine/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <stdexcept>

namespace spillway::trainer::serve {
namespace {

const std::vector<float> kLogits = {1.0f, 3.0f, 2.0f, 3.0f, -std::numeric_limits<float>::infinity(), 0.5f};

// How often each token is drawn.
std::map<int64_t, double> shares(const Sampling& sampling, int draws = 20000) {
  std::map<int64_t, double> shares;
  for (int i = 0; i < draws; ++i) shares[choose(kLogits, sampling, uint64_t(i))] += 1.0 / draws;
  return shares;
}

TEST(Sampler, GreedyIsTheFirstOfTheLargest) {
  for (uint64_t place = 0; place < 9; ++place)
    EXPECT_EQ(choose(kLogits, {.temperature = 0, .seed = place}, place), 1);
}

TEST(Sampler, DrawsByTheSoftmaxOverTheTemperature) {
  for (const double temperature : {0.5, 1.0, 2.0}) {
    double sum = 0;
    for (const float logit : kLogits) sum += std::exp(logit / temperature);
    auto seen = shares({.temperature = temperature, .seed = 7});
    EXPECT_FALSE(seen.contains(4)) << "of probability zero";
    for (size_t i = 0; i < kLogits.size(); ++i)
      EXPECT_NEAR(seen[int64_t(i)], std::exp(kLogits[i] / temperature) / sum, 0.015)
          << temperature << " " << i;
  }
}

TEST(Sampler, TopKLeavesTheLargestAndTopPTheFewestThatMakeItUp) {
  EXPECT_EQ(shares({.top_k = 1}).size(), 1u);
  EXPECT_EQ(shares({.top_k = 3}).size(), 3u);
  EXPECT_TRUE(shares({.top_k = 3}).contains(2));
  // The shares are 0.384, 0.384, 0.141, 0.052, 0.032.
  EXPECT_EQ(shares({.top_p = 0}).size(), 1u);
  EXPECT_EQ(shares({.top_p = 0.38}).size(), 1u);
  EXPECT_EQ(shares({.top_p = 0.5}).size(), 2u);
  EXPECT_EQ(shares({.top_p = 0.8}).size(), 3u);
  EXPECT_EQ(shares({.top_p = 0.8, .top_k = 2}).size(), 2u);
  EXPECT_NEAR(shares({.top_p = 0.5})[1], 0.5, 0.02);
}

TEST(Sampler, DrawIsOfSeedAndPlaceAlone) {
  const Sampling a{.seed = 1}, b{.seed = 2};
  std::vector<int64_t> first, again, other;
  for (uint64_t place = 0; place < 64; ++place) {
    first.push_back(choose(kLogits, a, place));
    again.push_back(choose(kLogits, a, place));
    other.push_back(choose(kLogits, b, place));
  }
  EXPECT_EQ(first, again);
  EXPECT_NE(first, other);
}

TEST(Sampler, ChancesAreLogarithmsOfTheSoftmax) {
  const auto seen = chances(kLogits, 2, 3);
  ASSERT_EQ(seen.size(), 4u);
  double sum = 0;
  for (const float logit : kLogits) sum += std::exp(logit);
  EXPECT_NEAR(seen[0].log_probability, 2 - std::log(sum), 1e-6);
  EXPECT_EQ(seen[1].token, 1);
  EXPECT_EQ(seen[2].token, 3);
  EXPECT_EQ(seen[3].token, 2);
  EXPECT_EQ(chances(kLogits, 0, 99).size(), 1 + kLogits.size());
}

TEST(Sampler, LogitsThatAreNoNumbersAreAnError) {
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()})
    for (const size_t at : {0, 1, 3}) {
      std::vector<float> logits = {1, 2, 3, 4};
      logits[at] = bad;
      EXPECT_THROW(choose(logits, {}, 0), std::domain_error);
    }
}

}  // namespace
}  // namespace spillway::trainer::serve
