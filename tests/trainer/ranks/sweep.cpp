// Ranks of which one runs out of memory in the middle of a step, at each request that it makes there: every
// training has the bits of one that nothing disturbs. Started once for each rank, on a simulated card each.
//
//     ranks_sweep CORPUS STAGE EVERY    prints how many trainings there were, or what differs
#include <ATen/Parallel.h>

#include <cstdio>
#include <cstdlib>

#include "tests/trainer/recovery/outcome.h"
#include "tests/trainer/small_models.h"
#include "trainer/step/training_step.h"

namespace spillway::trainer {
namespace {

constexpr uint64_t kSteps = 4, kDisturbed = 2;  // a step whose plan has completed one

// From the n-th request on all fail, until a plan move is adopted.
class UntilAMove : public TrainingStep {
 public:
  using TrainingStep::TrainingStep;
  uint64_t fired = 0;
  std::optional<Failure> adopt(const Plan& from, const Plan& to) override {
    fired += Core::get().table()->fail_request(0, 0);
    return TrainingStep::adopt(from, to);
  }
};

struct Sweep {
  Config config;
  Corpus corpus;
  std::shared_ptr<Ranks> ranks;

  // `n`: the last rank's request of the disturbed step that fails; 0: none.
  struct Trained {
    Outcome outcome;
    uint64_t fired = 0, moves = 0;
    bool done = true;
  };
  Trained train(uint64_t n) const {
    const bool fails = n > 0 && ranks->rank() + 1 == ranks->size();
    const spillway_core_table* const core = Core::get().table();
    Shape shape = config.shape();
    shape.ranks = ranks->size();
    PlanMoves moves(Core::get(), shape, {}, config.recovery.floor);
    UntilAMove program(config, corpus, {at::Device(at::kCUDA, 0)}, config.plan, Core::get(), moves, ranks);
    RecoverableStep step(program, shape, {}, config.plan, config.recovery);
    Trained trained;
    for (uint64_t number = 0; number < kSteps && trained.done; ++number) {
      if (fails && number == kDisturbed) core->fail_request(n, 1);
      trained.done = step.run(number) == StepOutcome::kDone;
      if (number == kDisturbed) trained.fired = program.fired + core->fail_request(0, 0);
      trained.outcome.losses.push_back(program.loss());
      trained.outcome.norms.push_back(program.gradient_norm());
    }
    trained.outcome.weights = program.whole_states().hash();
    trained.moves = step.records().size();
    return trained;
  }
};

Config config_of(const char* stage) {
  Config config;
  config.model = small_gpt2(2, 16, 2, 8, 0.1);
  config.data.workers = 0;
  config.train = {.steps = kSteps, .batch = 8, .warmup = 1};
  config.plan = {.micro_batch = 2, .evaluation_batch = 4};
  config.recovery.floor = Guarantee::kBitExact;
  config.run.zero = uint32_t(std::atoi(stage));
  return config;
}

int sweep(const Sweep& of, uint64_t every) {
  const Outcome undisturbed = of.train(0).outcome;
  uint64_t trainings = 0, failed = 0, moves = 0;
  for (uint64_t n = 1;; n += every) {
    const Sweep::Trained trained = of.train(n);
    if (!trained.done || trained.outcome != undisturbed) {
      std::printf("rank %u, request %lu: %s\n", of.ranks->rank(), n, trained.done ? "other bits" : "gave up");
      return 1;
    }
    if (of.ranks->sum(double(trained.fired)) == 0) break;
    ++trainings, failed += trained.fired, moves += trained.moves;
  }
  std::printf("rank %u: %lu trainings, %lu failures, %lu recoveries\n", of.ranks->rank(), trainings, failed,
              moves);
  of.ranks->leave();
  return 0;
}

int sweep_as_launched(char** arguments) {
  std::string error;
  at::set_num_threads(1);
  const auto launch = launch_of([](const char* name) -> const char* { return std::getenv(name); }, &error);
  if (!launch || !Core::install("", &error)) return std::fprintf(stderr, "%s\n", error.c_str()), 2;
  ::setenv("CUDA_VISIBLE_DEVICES", own_gpu(*launch, "").value_or("").c_str(), 1);
  Sweep of{.config = config_of(arguments[2]), .corpus = {}, .ranks = nullptr};
  auto corpus = Corpus::open(arguments[1], 0.1, Examples::window_tokens(of.config.model), &error);
  if (!corpus) return std::fprintf(stderr, "%s\n", error.c_str()), 2;
  of.corpus = std::move(*corpus);
  of.ranks = std::make_shared<Ranks>(*launch, at::Device(at::kCUDA, 0),
                                     RanksTimes{.timeout = std::chrono::seconds(60)});
  return sweep(of, std::strtoull(arguments[3], nullptr, 10));
}

}  // namespace
}  // namespace spillway::trainer

int main(int count, char** arguments) {
  return count == 4 ? spillway::trainer::sweep_as_launched(arguments) : 2;
}
