// Ranks of which one, or each, runs out of memory in the middle of a step, at each request that it makes
// there: every training has the bits of one that nothing disturbs, or that has the same plans. Started once
// for each rank, on a simulated card each.
//
//     ranks_sweep CORPUS STAGE FIRST EVERY CASE...    prints how many trainings there were, or what differs
//
// STAGE is that of ZeRO, or "line": the ranks are the stages of a pipeline. The requests are FIRST, FIRST +
// EVERY, ...
//
// Cases, of a rank's n-th request and all that follow it until a move is adopted, where no other is said:
//     moves     moves that keep every bit
//     once      the n-th request alone
//     splits    where a split of the micro-batch is the only move that has room
//     all       the same, on all ranks at once
//     replay    the same, and again at the n-th request of the step that is begun anew
//     attempts  the same, where that is the last attempt: all ranks give up, and the step goes through later
//     gives_up  where no move has room: likewise
//     adopts    where a move of layers to the host and the way back have no room either, and no other move
//     has
//     adoption  moves that keep every bit, and requests fail until one of these cannot be adopted
//     common    splits, and the others have no room for the plan that all adopt when they are asked first
#include <ATen/Parallel.h>

#include <cstdio>
#include <cstdlib>
#include <set>

#include "tests/trainer/recovery/outcome.h"
#include "tests/trainer/small_models.h"
#include "trainer/step/training_step.h"

namespace spillway::trainer {
namespace {

constexpr uint64_t kSteps = 3, kDisturbed = 1;  // a step whose plan has completed one

struct Case {
  std::string name;
  bool is(const char* other) const { return name == other; }
  bool splits() const { return !is("moves") && !is("once") && !is("adopts") && !is("adoption"); }
  bool fails_again() const { return is("replay") || is("attempts"); }
  bool ends() const { return is("attempts") || is("gives_up"); }
};

// Its requests fail from the n-th on.
class Disturbed : public TrainingStep {
 public:
  using TrainingStep::TrainingStep;
  Case in;
  uint64_t fired = 0, again = 0;  // again: the request of the replay that fails

  void fail_from(uint64_t n) { Core::get().table()->fail_request(n, in.is("once") ? 0 : 1); }
  void fail_no_more() { fired += Core::get().table()->fail_request(0, 0); }
  std::optional<Failure> adopt(const Plan& from, const Plan& to) override {
    if (in.is("adopts")) return adopt_without_room(from, to);
    if (in.is("adoption")) return adopt_while_requests_fail(from, to);
    if (has_no_room(from, to))
      return to == running ? std::nullopt : std::optional(Failure{"no room", "plan", {}});
    fail_no_more();
    running = to;
    return TrainingStep::adopt(from, to);
  }
  bool has_no_room(const Plan& from, const Plan& to) {
    const bool is_split = to.micro_batch < from.micro_batch;
    if (in.is("gives_up")) return true;
    if (in.is("common") && follows) return is_split && !std::exchange(has_refused, true);
    if (in.is("common") && from.micro_batch < first_micro_batch) return false;
    return in.splits() && !is_split && to.micro_batch <= from.micro_batch;
  }
  std::optional<Failure> adopt_while_requests_fail(const Plan& from, const Plan& to) {
    auto failure = TrainingStep::adopt(from, to);
    if (failure) fail_no_more(), in.name = "moves", ++failed_adoptions;
    return failure;
  }
  void restore_step() override {
    TrainingStep::restore_step();
    if (const uint64_t n = std::exchange(again, 0)) fail_from(n);
  }
  Plan running;
  bool follows = false, has_refused = false;  // another rank's lead; the first plan of it
  uint32_t first_micro_batch = 0;
  uint64_t failed_adoptions = 0;

 private:
  // Of the layers' first move alone, and its way back.
  std::optional<Failure> adopt_without_room(const Plan& from, const Plan& to) {
    const bool moves = from.parameters != to.parameters || from.gradients != to.gradients;
    if (moves && to == running && tried_ == 1) {
      const auto failure = TrainingStep::adopt(from, to);
      fail_no_more();
      ++tried_;
      return failure;
    }
    if (!moves || tried_ > 0)
      return to == running ? std::nullopt : std::optional(Failure{"no room", "plan", {}});
    ++tried_;
    return TrainingStep::adopt(from, to);
  }
  int tried_ = 0;
};

struct Sweep {
  Config config;
  const Corpus& corpus;
  std::shared_ptr<Ranks> ranks;
  const Mesh& mesh;
  Case in;

  struct Trained {
    Outcome outcome;
    Plan plan;
    uint64_t fired = 0, recoveries = 0, gave_up = 0, failed_adoptions = 0;
    std::set<std::string> phases;
    std::string fault;
  };

  bool fails(uint32_t victim) const { return in.is("all") || ranks->rank() == victim; }

  // `n`: the request of the disturbed step that fails, of `victim`; 0: none, but the victim has `plan` from
  // that step on, and so have the others where they share gradients.
  Trained train(uint32_t victim, uint64_t n, const Plan& plan) const {
    Shape shape = config.shape();
    shape.stage = mesh.stage();
    PlanMoves moves(Core::get(), shape, {}, config.recovery.floor);
    Disturbed program(config, corpus, {at::Device(at::kCUDA, 0)}, config.plan, Core::get(), moves, mesh);
    program.in = in, program.running = config.plan, program.follows = !fails(victim);
    program.first_micro_batch = config.plan.micro_batch;
    RecoverableStep step(program, shape, {}, config.plan, config.recovery);
    Trained trained;
    for (uint64_t number = 0; number < kSteps; ++number) {
      if (number == kDisturbed && n == 0 && (fails(victim) || config.shared_work().has_sequence())) {
        program.in.name = "moves";
        step.follow(number, plan, &trained.fault);
      }
      const bool disturbed = number == kDisturbed && n > 0 && fails(victim);
      if (disturbed) program.fail_from(n), program.again = in.fails_again() ? n : 0;
      run(number, program, step, &trained);
    }
    return trained;
  }

  void run(uint64_t number, Disturbed& program, RecoverableStep& step, Trained* trained) const {
    const uint64_t before = program.parameters().hash();
    if (step.run(number) == StepOutcome::kGaveUp) {
      ++trained->gave_up;
      if (program.parameters().hash() != before || program.step() != number) trained->fault = "left a trace";
      program.fail_no_more();
      program.in.name = "moves";
      program.again = 0;
      if (step.run(number) != StepOutcome::kDone) trained->fault = "gave up twice";
    }
    program.fail_no_more();
    if (program.step() != number + 1) trained->fault = "a step that was not done once";
    trained->fired = program.fired;
    trained->outcome.losses.push_back(program.loss());
    trained->outcome.norms.push_back(program.gradient_norm());
    trained->outcome.weights = program.parameters().hash();
    trained->plan = step.plan();
    trained->failed_adoptions = program.failed_adoptions;
    trained->recoveries = step.records().size();
    for (const RecoveryRecord& record : step.records())
      if (!record.asked || record.asked->rank == ranks->rank()) trained->phases.insert(record.phase);
  }

  // The same on all ranks, or "".
  std::string fault_of(const Trained& trained, const Outcome& expected) const {
    if (!trained.fault.empty()) return trained.fault;
    if (in.is("adoption") && trained.fired > 0 && trained.failed_adoptions == 0) return "adopted each plan";
    if (in.ends() != (trained.gave_up > 0)) return in.ends() ? "did not give up" : "gave up";
    return trained.outcome == expected ? "" : "other bits";
  }
};

Config config_of(uint32_t stage, uint32_t stages, const Case& in) {
  Config config;
  // Where layers come in slots: as many as slots have to leave them again.
  config.model = small_gpt2(std::max(stage < 2 ? 1u : 2u, stages), 16, 2, 8, 0.1);
  // Slots of fewer layers would free nothing, so that no layer would leave the card.
  if (in.is("adopts")) config.model = small_gpt2(3, 16, 2, 8, 0.1);
  if (in.is("adoption")) config.model = small_gpt2(4, 16, 2, 8, 0.1);
  config.data.workers = 0;
  config.train = {.steps = kSteps, .batch = 16, .warmup = 1};
  config.plan = {.micro_batch = 4, .evaluation_batch = 4};
  if (stage >= 2) config.plan.recompute = {0};
  config.recovery.floor = in.splits() ? Guarantee::kNumericallyEqual : Guarantee::kBitExact;
  if (in.is("attempts")) config.recovery.attempts = 2;
  config.run.zero = stage;
  config.run.stages = stages;
  return config;
}

// Of one rank that fails, or of all. False where something differs.
bool sweep(const Sweep& of, uint32_t victim, uint64_t first_request, uint64_t every) {
  const Plan first = of.config.plan;
  Plan half = first, quarter = first;
  half.micro_batch /= 2, quarter.micro_batch /= 4;
  const Plan last = of.in.is("gives_up") || !of.in.splits() ? first : of.in.is("replay") ? quarter : half;
  const Outcome undisturbed = of.train(victim, 0, last).outcome;
  uint64_t trainings = 0, failed = 0, recoveries = 0;
  std::set<std::string> phases;
  for (uint64_t n = first_request;; n += every) {
    const Sweep::Trained trained = of.train(victim, n, first);
    const uint64_t fired = uint64_t(of.ranks->sum(double(trained.fired)));
    if (fired == 0) break;
    // The replay may have had fewer requests than the try before it.
    const bool is_short = of.in.fails_again() && of.ranks->sum(double(trained.recoveries)) == 0;
    const std::string fault = is_short ? "" : of.fault_of(trained, undisturbed);
    if (of.ranks->sum(fault.empty() ? 0 : 1) > 0) {
      std::printf("%s: rank %u, request %lu of rank %u: %s\n", of.in.name.c_str(), of.ranks->rank(), n,
                  victim, fault.c_str());
      return false;
    }
    ++trainings, failed += trained.fired > 0, recoveries += trained.recoveries;
    phases.insert(trained.phases.begin(), trained.phases.end());
  }
  std::printf("%s: rank %u, of rank %u %lu trainings, %lu failures, %lu recoveries in", of.in.name.c_str(),
              of.ranks->rank(), victim, trainings, failed, recoveries);
  for (const std::string& phase : phases) std::printf(" %s", phase.c_str());
  std::printf("\n");
  return true;
}

int sweep_as_launched(int count, char** arguments) {
  std::string error;
  at::set_num_threads(1);
  const auto launch = launch_of([](const char* name) -> const char* { return std::getenv(name); }, &error);
  if (!launch || !Core::install("", &error)) return std::fprintf(stderr, "%s\n", error.c_str()), 2;
  ::setenv("CUDA_VISIBLE_DEVICES", own_gpu(*launch, "").value_or("").c_str(), 1);
  const auto number = [&](int i) { return std::strtoull(arguments[i], nullptr, 10); };
  auto corpus = Corpus::open(arguments[1], 0.1, Examples::window_tokens(config_of(0, 1, {}).model), &error);
  if (!corpus) return std::fprintf(stderr, "%s\n", error.c_str()), 2;
  const auto ranks = std::make_shared<Ranks>(*launch, at::Device(at::kCUDA, 0),
                                             RanksTimes{.timeout = std::chrono::seconds(60)});
  const uint32_t stages = std::string(arguments[2]) == "line" ? ranks->size() : 1;
  const Mesh mesh = stages == 1 ? Mesh(ranks) : Mesh(ranks, config_of(0, stages, {}).stage_layers(), true);
  for (int i = 5; i < count; ++i) {
    const Case in{arguments[i]};
    const Sweep of{.config = config_of(uint32_t(number(2)), stages, in),
                   .corpus = *corpus,
                   .ranks = ranks,
                   .mesh = mesh,
                   .in = in};
    for (uint32_t victim = 0; victim < (in.is("all") ? 1 : ranks->size()); ++victim)
      if (!sweep(of, victim, number(3), number(4))) return 1;
  }
  ranks->leave();
  return 0;
}

}  // namespace
}  // namespace spillway::trainer

int main(int count, char** arguments) {
  return count > 5 ? spillway::trainer::sweep_as_launched(count, arguments) : 2;
}
