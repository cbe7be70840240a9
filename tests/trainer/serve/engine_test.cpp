// Text made over a cache: the logits are those of the whole forward, and the tokens do not depend on who else
// runs, nor on pre-emption.
#include "trainer/serve/engine/engine.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/trainer/serve/serve_models.h"
#include "trainer/serve/engine/cache_size.h"
#include "trainer/serve/engine/engine_thread.h"

namespace spillway::trainer::serve {
namespace {

class Serving : public testing::TestWithParam<Family> {
 protected:
  Serving() { at::set_num_threads(1); }
  ServedModel served(at::ScalarType type = at::kFloat) const {
    return {architecture_, weights_, {.type = type}};
  }

  std::vector<Made> one_by_one(const std::vector<Job>& jobs) const {
    const ServedModel model = served();
    std::vector<Made> all;
    for (const Job& job : jobs) {
      Engine engine(model, 64, {});
      all.push_back(made_by(&engine, {job})[0]);
    }
    return all;
  }

  // The logits of all of a decoder's tokens, by the forward of a training: [tokens, vocabulary].
  at::Tensor whole_logits(const Sequence& sequence) const {
    Architecture model = architecture_;
    std::vector<int64_t> row = sequence.source;
    row.insert(row.end(), sequence.tokens.begin() + (model.has_decoder() ? 1 : 0), sequence.tokens.end());
    row.push_back(0);
    if (model.has_decoder())
      model.context = uint32_t(sequence.source.size()), model.target = uint32_t(sequence.tokens.size());
    else
      model.context = uint32_t(sequence.tokens.size());
    return Model(model).logits(weights_, at::tensor(row, at::kLong).unsqueeze(0))[0];
  }

  Sequence sequence_of(size_t tokens) const {
    Sequence sequence;
    for (size_t i = 0; i < tokens; ++i) sequence.tokens.push_back(int64_t(3 + i * 37 % 200));
    if (architecture_.has_decoder()) {
      sequence.tokens[0] = 0;
      for (size_t i = 0; i < 21; ++i) sequence.source.push_back(int64_t(3 + i * 29 % 200));
    }
    for (uint32_t block : {7, 2, 5, 0}) sequence.blocks.push_back(block);
    sequence.source_blocks = {1, 6};
    return sequence;
  }

  const Architecture architecture_ = serve_architecture(GetParam());
  const std::vector<at::Tensor> weights_ = serve_weights(architecture_);
};

TEST_P(Serving, LogitsOverACacheAreThoseOfTheWholeForward) {
  const ServedModel model = served();
  for (const uint64_t at_once : {50, 13, 1}) {
    Sequence sequence = sequence_of(50);
    const at::Tensor whole = whole_logits(sequence);
    KvCache cache = model.make_cache(8);
    double most = 0;
    while (sequence.cached < sequence.tokens.size()) {
      const uint64_t tokens = std::min<uint64_t>(at_once, sequence.tokens.size() - sequence.cached);
      std::vector<Segment> batch{{&sequence, tokens}};
      const at::Tensor logits = model.head(&batch, &cache).logits()[0];
      const at::Tensor wanted = whole.narrow(0, int64_t(sequence.cached), int64_t(tokens));
      most = std::max(most, (logits - wanted).abs().max().item().toDouble());
      // A prompt that is computed at once runs the same kernels; a t5's reads its cache even then.
      if (at_once == 50) {
        EXPECT_TRUE(at::equal(logits, wanted)) << most;
      }
      Scheduler::computed(batch[0]);
    }
    EXPECT_LE(most, 1e-5 * whole.abs().max().item().toDouble()) << at_once << " tokens at a time";
  }
}

TEST_P(Serving, TokensDoNotDependOnWhoElseRunsOrIsPreempted) {
  for (const double temperature : {0.0, 0.9}) {
    const ServedModel model = served();
    const std::vector<Job> all = jobs_for(17, temperature);
    const std::vector<Made> alone = one_by_one(all);
    std::set<int64_t> different;
    for (const Made& made : alone) different.insert(made.tokens.begin(), made.tokens.end());
    EXPECT_GT(different.size(), 10u) << "not the same token again and again";
    for (const size_t sequences : {1, 3, 17}) {
      const std::vector<Job> jobs(all.begin(), all.begin() + long(sequences));
      const std::vector<Made> wanted(alone.begin(), alone.begin() + long(sequences));
      Engine wide(model, 128, {}), narrow(model, 6, {.sequences = 17, .prefill_tokens = 20});
      EXPECT_EQ(made_by(&wide, jobs), wanted);
      EXPECT_EQ(wide.stats().preemptions, 0u);
      EXPECT_EQ(made_by(&narrow, jobs), wanted);
      if (sequences == 17) {
        EXPECT_GT(narrow.stats().preemptions, 0u);
        EXPECT_LT(wide.stats().steps, narrow.stats().steps);
      }
    }
  }
}

TEST_P(Serving, SequenceEndsAtItsEndTokenAtAStopAndWhenItIsCancelled) {
  const ServedModel model = served();
  const Job job = jobs_for(3, 0)[2];
  const std::vector<int64_t> tokens = one_by_one({job})[0].tokens;
  size_t at = 1;  // the first token that did not come before
  while (std::find(tokens.begin(), tokens.begin() + long(at), tokens[at]) != tokens.begin() + long(at)) ++at;
  Engine engine(model, 64, {});
  std::vector<Job> jobs{job};
  jobs[0].ends = {tokens[at]};
  const Made ended = made_by(&engine, jobs)[0];
  EXPECT_EQ(ended.finish, Finish::kStop);
  EXPECT_EQ(ended.tokens, std::vector<int64_t>(tokens.begin(), tokens.begin() + long(at) + 1));

  std::vector<Finish> ends;
  Job enough = job, cancelled = job;
  enough.on_token = [](const TokenEvent&) { return false; };
  enough.on_end = cancelled.on_end = [&](Finish finish) { ends.push_back(finish); };
  engine.submit(enough);
  const uint64_t id = engine.submit(cancelled);
  engine.step();
  EXPECT_LT(engine.stats().free_blocks, engine.stats().blocks);
  engine.cancel(id);
  EXPECT_FALSE(engine.step());
  EXPECT_EQ(ends, (std::vector<Finish>{Finish::kStop, Finish::kCancelled}));
  EXPECT_EQ(engine.stats().free_blocks, engine.stats().blocks);
}

TEST_P(Serving, HalvesAreServedToo) {
  const ServedModel model = served(at::kBFloat16);
  Engine engine(model, 64, {});
  for (const Made& made : made_by(&engine, jobs_for(3, 0))) EXPECT_GE(made.tokens.size(), 24u);
}

TEST_P(Serving, EngineOnAThreadServesAllWhoAskAtOnce) {
  const ServedModel model = served();
  const std::vector<Job> all = jobs_for(5, 0);
  const std::vector<Made> wanted = one_by_one(all);
  std::vector<Made> made(all.size());
  std::atomic<size_t> ended{0};
  {
    EngineThread thread(std::make_unique<Engine>(model, 12, BatchLimits{}), [] {});
    std::vector<std::thread> clients;
    for (size_t i = 0; i < all.size(); ++i)
      clients.emplace_back([&, i] {
        Job job = all[i];
        job.on_token = [&, i](const TokenEvent& event) {
          return made[i].tokens.push_back(event.token), true;
        };
        job.on_end = [&, i](Finish finish) { made[i].finish = finish, ++ended, ended.notify_all(); };
        thread.submit(std::move(job));
      });
    for (std::thread& client : clients) client.join();
    for (size_t seen = ended; seen < all.size(); seen = ended) ended.wait(seen);
    Job left = all[0];
    left.max_tokens = 60;
    left.on_end = [&](Finish finish) { ended += finish == Finish::kCancelled; };
    left.on_token = [&](const TokenEvent&) { return std::this_thread::yield(), true; };
    thread.cancel(thread.submit(std::move(left)));
  }
  EXPECT_EQ(made, wanted);
  EXPECT_EQ(ended, all.size() + 1);
}

INSTANTIATE_TEST_SUITE_P(Families, Serving, testing::ValuesIn(kFamilies),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace
}  // namespace spillway::trainer::serve
