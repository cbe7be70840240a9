// Text made on simulated cards: the size of the cache, steps that run out of memory, and layers on several
// cards.
#include "tests/trainer/serve/serve_models.h"
#include "tests/trainer/simulated.h"
#include "trainer/serve/engine/cache_size.h"
#include "trainer/serve/evaluate/perplexity.h"

namespace spillway::trainer::serve {
namespace {

class ServingOnACard : public Simulated {
 protected:
  ServedModel served(Family family) const {
    const Architecture model = serve_architecture(family);
    return {model, serve_weights(model), {.devices = {devices_[0]}}};
  }
  static constexpr BatchLimits kLimits{.sequences = 4, .prefill_tokens = 32};

  struct Swept {
    uint64_t fired = 0, preempted = 0;
  };
  // Every `stride`-th request fails, once an engine, until none is left.
  Swept sweep(const ServedModel& model, const std::vector<Job>& jobs, const std::vector<Made>& wanted,
              uint64_t stride) const {
    Swept swept;
    for (uint64_t n = 1;; n += stride) {
      Engine engine(model, 32, kLimits);
      // Until a step has failed: the ladder may find something for a single request.
      const auto end = [&] {
        if (engine.stats().out_of_memory > 0) core_.table()->fail_request(0, 0);
      };
      core_.table()->fail_request(n, 1);
      EXPECT_EQ(made_by(&engine, jobs, end), wanted) << "at " << n;
      core_.table()->fail_request(0, 0);
      if (engine.stats().out_of_memory == 0) return swept;
      ++swept.fired;
      EXPECT_EQ(engine.stats().out_of_memory, 1u) << "at " << n;
      swept.preempted += engine.stats().preemptions;
    }
  }
};

TEST_F(ServingOnACard, StepWithoutMemoryPreemptsAndTheTokensStayTheSame) {
  for (const Family family : kFamilies) {
    const ServedModel model = served(family);
    const std::vector<Job> jobs = jobs_for(4, 0, 6);
    Engine undisturbed(model, 32, kLimits);
    const std::vector<Made> wanted = made_by(&undisturbed, jobs);
    const auto [fired, preempted] = sweep(model, jobs, wanted, 61);
    EXPECT_GT(fired, 5u) << name_of(family);
    EXPECT_GT(preempted, 3u) << name_of(family);
  }
  EXPECT_EQ(violations(), "");
}

TEST_F(ServingOnACard, SequenceThatNeverHasMemoryEndsAndTheNextOnesAreServed) {
  const ServedModel model = served(Family::kLlama);
  Engine engine(model, 32, kLimits);
  const std::vector<Made> wanted = made_by(&engine, jobs_for(3, 0, 6));
  core_.table()->fail_request(1, 1);
  for (const Made& made : made_by(&engine, jobs_for(3, 0, 6))) EXPECT_EQ(made.finish, Finish::kNoMemory);
  core_.table()->fail_request(0, 0);
  EXPECT_EQ(made_by(&engine, jobs_for(3, 0, 6)), wanted);
}

TEST_F(ServingOnACard, CacheFillsTheShareOfTheCardThatItMay) {
  set_limits(256 * kMiB);
  const ServedModel model = served(Family::kGpt2);
  for (const double share : {0.5, 0.9}) {
    std::string told;
    const uint32_t blocks = cache_blocks(model, {.memory_utilization = share}, kLimits, core_, &told);
    Engine engine(model, blocks, kLimits);
    made_by(&engine, jobs_for(4, 0, 6));
    spillway_memory memory;
    ASSERT_TRUE(core_.query(0, &memory));
    const uint64_t used = memory.context + memory.others + memory.live + memory.rounding;
    EXPECT_LE(used, uint64_t(share * double(memory.limit))) << told;
    EXPECT_GE(used + 4 * kMiB, uint64_t(share * double(memory.limit))) << told;
    EXPECT_THAT(told, testing::HasSubstr("blocks of 16 tokens"));
  }
  std::string told;
  try {
    cache_blocks(model, {.memory_utilization = 2e-4}, kLimits, core_, &told);
    ADD_FAILURE() << told;
  } catch (const NoRoomError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("raise --memory-utilization"));
  }
}

class ServingOnSeveralCards : public ServingOnACard {
 protected:
  static ModelOptions with(const DeviceMap& map) {
    return {.devices = {at::Device(at::kCUDA, 0), at::Device(at::kCUDA, 1)},
            .place = [map](const Architecture&) { return map; }};
  }
  static ServedModel spread(const Architecture& model, const DeviceMap& map) {
    return {model, serve_weights(model), with(map)};
  }
  // In turn, and every layer beside the embedding on the other card.
  static std::vector<DeviceMap> maps_of(const Architecture& model) {
    DeviceMap in_turn, all;
    for (uint32_t layer = 0; layer < model.all_layers(); ++layer) {
      if (layer % 2 == 0) in_turn[layer] = 1;
      all[layer] = 1;
    }
    return {device_map_even(model, 2), in_turn, all};
  }
  static std::vector<Made> made_with(const ServedModel& model, uint32_t blocks, uint64_t* preempted) {
    Engine engine(model, blocks, {.sequences = 7, .prefill_tokens = 20});
    std::vector<Made> made = made_by(&engine, jobs_for(7, 0));
    *preempted = engine.stats().preemptions;
    return made;
  }
};

TEST_F(ServingOnSeveralCards, TokensAreThoseOfOneCardUnderPreemptionToo) {
  for (const Family family : kFamilies) {
    const Architecture model = serve_architecture(family);
    uint64_t preempted = 0;
    const std::vector<Made> wanted = made_with(spread(model, {}), 128, &preempted);
    for (const DeviceMap& map : maps_of(model)) {
      const ServedModel several = spread(model, map);
      EXPECT_EQ(several.devices().size(), 2u);
      EXPECT_EQ(made_with(several, 128, &preempted), wanted) << name_of(family);
      EXPECT_EQ(preempted, 0u);
      EXPECT_EQ(made_with(several, 6, &preempted), wanted) << name_of(family);
      EXPECT_GT(preempted, 0u) << name_of(family);
    }
  }
  EXPECT_EQ(violations(), "");
}

TEST_F(ServingOnSeveralCards, PerplexityIsThatOfOneCardBitForBit) {
  std::vector<std::byte> text;
  for (int i = 0; i < 200; ++i) text.push_back(std::byte(i * 37 % 251));
  for (const Family family : {Family::kGpt2, Family::kLlama}) {
    const Architecture model = serve_architecture(family);
    const TokenView tokens(text, 1);
    const double wanted = perplexity(spread(model, {}), tokens, 64, 32).nats;
    for (const DeviceMap& map : maps_of(model))
      EXPECT_EQ(perplexity(spread(model, map), tokens, 64, 32).nats, wanted) << name_of(family);
  }
}

TEST_F(ServingOnSeveralCards, AFailureOnEitherCardPreemptsAndTheTokensStayTheSame) {
  const Architecture architecture = serve_architecture(Family::kLlama);
  const ServedModel model = spread(architecture, device_map_even(architecture, 2));
  const std::vector<Job> jobs = jobs_for(4, 0, 6);
  Engine undisturbed(model, 32, kLimits);
  const std::vector<Made> wanted = made_by(&undisturbed, jobs);
  const uint64_t fired = sweep(model, jobs, wanted, 37).fired;
  EXPECT_GT(fired, 5u);
  EXPECT_EQ(violations(), "");
}

TEST_F(ServingOnSeveralCards, TheCardWithTheLeastRoomDecidesTheCache) {
  const Architecture architecture = serve_architecture(Family::kGpt2);
  const ServedModel model = spread(architecture, device_map_even(architecture, 2));
  const auto blocks_with = [&](uint64_t first, uint64_t second, std::string* told) {
    core_.limit(0, first);
    core_.limit(1, second);
    return cache_blocks(model, {}, kLimits, core_, told);
  };
  std::string told;
  const uint32_t both = blocks_with(256 * kMiB, 256 * kMiB, &told);
  EXPECT_LT(blocks_with(256 * kMiB, 128 * kMiB, &told), both);
  EXPECT_THAT(told,
              testing::HasSubstr("cuda:1 has room for the fewest: of 115.2 MiB that may be used there"));
  const uint32_t fewest = blocks_with(96 * kMiB, 256 * kMiB, &told);
  EXPECT_THAT(told, testing::HasSubstr("cuda:0 has room for the fewest"));
  Engine engine(model, fewest, kLimits);
  made_by(&engine, jobs_for(4, 0, 6));
  spillway_memory memory;
  ASSERT_TRUE(core_.query(0, &memory));
  const uint64_t used = memory.context + memory.others + memory.live + memory.rounding;
  EXPECT_LE(used, uint64_t(0.9 * double(96 * kMiB))) << told;
  EXPECT_GE(used + 4 * kMiB, uint64_t(0.9 * double(96 * kMiB))) << told;
}

TEST_F(ServingOnSeveralCards, ACardThatIsTooSmallIsNamedWithWhatIsMissing) {
  Architecture architecture = small_gpt2(4, 512, 4, 96);
  const auto spread_evenly = [&] { return spread(architecture, device_map_even(architecture, 2)); };
  core_.limit(1, 16 * kMiB);  // of 24 for its weights
  try {
    spread_evenly();
    ADD_FAILURE() << "there is room";
  } catch (const NoRoomError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr(
                                  "cuda:1 (layers 2 to 3) has no room for its weights, which need 24.1 MiB"));
    EXPECT_THAT(error.what(),
                testing::ContainsRegex("of the 16.0 MiB .* 8\\.[0-9] MiB or more are missing: spread"));
  }
  core_.limit(1, 0);
  const ServedModel model = spread_evenly();
  std::string told;
  core_.limit(1, 30 * kMiB);
  try {
    cache_blocks(model, {.memory_utilization = 0.1}, kLimits, core_, &told);
    ADD_FAILURE() << told;
  } catch (const NoRoomError& error) {
    EXPECT_THAT(error.what(),
                testing::ContainsRegex("no room for a cache on cuda:1, where [0-9.]+ MiB are missing"));
    EXPECT_THAT(error.what(), testing::HasSubstr("give that device fewer layers (--device-map)"));
  }
}

}  // namespace
}  // namespace spillway::trainer::serve
