// Text made on a simulated card: the size of the cache, and steps that run out of memory.
#include "tests/trainer/serve/serve_models.h"
#include "tests/trainer/simulated.h"
#include "trainer/serve/engine/cache_size.h"

namespace spillway::trainer::serve {
namespace {

class ServingOnACard : public Simulated {
 protected:
  ServedModel served(Family family) const {
    const Architecture model = serve_architecture(family);
    return {model, serve_weights(model), devices_[0], at::kFloat};
  }
  static constexpr BatchLimits kLimits{.sequences = 4, .prefill_tokens = 32};
};

TEST_F(ServingOnACard, StepWithoutMemoryPreemptsAndTheTokensStayTheSame) {
  for (const Family family : kFamilies) {
    const ServedModel model = served(family);
    const std::vector<Job> jobs = jobs_for(4, 0, 6);
    Engine undisturbed(model, 32, kLimits);
    const std::vector<Made> wanted = made_by(&undisturbed, jobs);
    uint64_t fired = 0, preempted = 0;
    for (uint64_t n = 1;; n += 61) {
      Engine engine(model, 32, kLimits);
      // Until a step has failed: the ladder may find something for a single request.
      const auto end = [&] {
        if (engine.stats().out_of_memory > 0) core_.table()->fail_request(0, 0);
      };
      core_.table()->fail_request(n, 1);
      EXPECT_EQ(made_by(&engine, jobs, end), wanted) << "at " << n;
      core_.table()->fail_request(0, 0);
      if (engine.stats().out_of_memory == 0) break;
      ++fired;
      EXPECT_EQ(engine.stats().out_of_memory, 1u) << "at " << n;
      preempted += engine.stats().preemptions;
    }
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
  } catch (const CacheSizeError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("raise --memory-utilization"));
  }
}

}  // namespace
}  // namespace spillway::trainer::serve
