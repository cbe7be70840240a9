// Ranks of which the second one asks all to undo a step, and one is struck while they do. Started once for
// each rank, on CPUs.
//
//     ranks_struck CORPUS RANK WHERE HOW    ends as spillway-train does: 0, or 18 with the incident's text
//
// WHERE: drains (in the sums that the rank which asks still takes part in), speaks (before it says its word),
// is-ready (before it says that it has what was decided), sums (in a round that the others have made). HOW:
// kill, stop, hang, full (out of memory).
#include <signal.h>
#include <unistd.h>

#include <ATen/Parallel.h>

#include <cstdio>
#include <cstdlib>

#include "tests/trainer/small_models.h"
#include "trainer/app/run/outcome.h"
#include "trainer/app/run/rank_end.h"
#include "trainer/step/training_step.h"

namespace spillway::trainer {
namespace {

constexpr uint64_t kSteps = 6, kUndone = 3;
constexpr uint32_t kAsks = 1;

struct Strike {
  uint32_t rank = 0;
  std::string where, how;
  void at(const std::string& place, uint32_t mine) const {
    if (place != where || mine != rank) return;
    std::printf("struck\n"), std::fflush(stdout);
    TORCH_CHECK_WITH(OutOfMemoryError, how != "full", "no room");
    if (how == "hang")
      while (true) ::pause();
    ::raise(how == "kill" ? SIGKILL : SIGSTOP);
  }
};

class StruckRanks : public Ranks {
 public:
  using Ranks::Ranks;
  Strike strike;
  bool asks = false;
  void reduce_scatter(const at::Tensor& flat) override {
    if (asks && ++rounds_ == 2) strike.at("drains", rank());
    Ranks::reduce_scatter(flat);
    if (++all_rounds_ == 8) strike.at("sums", rank());
  }

 private:
  int rounds_ = 0, all_rounds_ = 0;
};

class StruckStep : public TrainingStep, private RanksOfStep {
 public:
  StruckStep(const Config& config, const Corpus& corpus, PlanMoves& moves,
             const std::shared_ptr<StruckRanks>& ranks)
      : TrainingStep(config, corpus, {at::kCPU}, config.plan, Core::get(), moves, Mesh(ranks)),
        ranks_(ranks) {}
  // The step's gradients are there, and nothing of them is added up.
  std::optional<Failure> prepare_commit() override {
    if (step() != kUndone || rank() != kAsks || ranks_->asks) return TrainingStep::prepare_commit();
    return Failure{.text = "out of memory",
                   .phase = "backward",
                   .chosen = MoveKind::kSplitMicroBatch,
                   .step_can_restart = false};
  }
  std::optional<Failure> adopt(const Plan& from, const Plan& to) override {
    if (to.micro_batch == from.micro_batch && to != from) return Failure{"no room", "plan", {}};
    return TrainingStep::adopt(from, to);
  }
  RanksOfStep* ranks() override { return this; }

 private:
  RanksOfStep& others() { return *TrainingStep::ranks(); }
  uint32_t rank() const override { return ranks_->rank(); }
  SharedWork shared_work() const override { return {1}; }
  bool undo_is_asked() const override { return const_cast<StruckStep*>(this)->others().undo_is_asked(); }
  void ask_to_undo(bool evaluating) override {
    ranks_->asks = true;
    others().ask_to_undo(evaluating);
  }
  Decision decide(const Word& mine, uint32_t attempts) override {
    ranks_->strike.at(mine.says == Word::Says::kIsReady ? "is-ready" : "speaks", rank());
    return others().decide(mine, attempts);
  }

  const std::shared_ptr<StruckRanks> ranks_;
};

Config config_of_struck() {
  Config config;
  config.model = small_gpt2(2, 16, 2, 8);
  config.data.workers = 0;
  config.train = {.steps = kSteps, .batch = 12, .warmup = 1};
  config.plan = {.micro_batch = 2, .evaluation_batch = 4};
  config.run.zero = 1;
  return config;
}

Results train_as(const Launch& launch, const Corpus& corpus, const Strike& strike, RankEnd* end) {
  using std::chrono::milliseconds;
  const Config config = config_of_struck();
  const auto ranks = std::make_shared<StruckRanks>(
      launch, at::kCPU,
      RanksTimes{.timeout = milliseconds(15'000), .beat = milliseconds(200), .bound = milliseconds(8000)},
      [end](std::shared_ptr<Watch> watch) { end->watch(std::move(watch)); });
  ranks->strike = strike;
  PlanMoves moves(Core::get(), config.shape(), {}, config.recovery.floor);
  StruckStep program(config, corpus, moves, ranks);
  RecoverableStep step(program, config.shape(), {}, config.plan, config.recovery);
  for (uint64_t number = 0; number < kSteps; ++number)
    if (step.run(number) != StepOutcome::kDone) throw std::runtime_error("a step that has room gave up");
  ranks->leave();
  return {};
}

int run_struck(char** arguments) {
  std::string error;
  at::set_num_threads(1);
  const auto launch = launch_of([](const char* name) -> const char* { return std::getenv(name); }, &error);
  const Config config = config_of_struck();
  auto corpus = Corpus::open(arguments[1], 0.1, Examples::window_tokens(config.model), &error);
  if (!launch || !corpus) return std::fprintf(stderr, "%s\n", error.c_str()), 2;
  const Strike strike{uint32_t(std::atoi(arguments[2])), arguments[3], arguments[4]};
  RankEnd end([](Results* results) { std::fprintf(stderr, "%s\n", results->verdict.c_str()); });
  auto [results, fault_of] = outcome_of([&] { return train_as(*launch, *corpus, strike, &end); });
  end.settle(&results, fault_of);
  std::fprintf(stderr, "%s\n", results.verdict.c_str());
  end.finish();
  std::fflush(nullptr);
  ::_exit(results.exit_code);
}

}  // namespace
}  // namespace spillway::trainer

int main(int count, char** arguments) {
  ::signal(SIGPIPE, SIG_IGN);  // as spillway-train has it: the others may have closed their ends
  return count == 5 ? spillway::trainer::run_struck(arguments) : 2;
}
