#include "trainer/app/trainer.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/cuda/CUDAContextLight.h>
#include <dlfcn.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <numbers>
#include <set>
#include <stdexcept>

#include "driver/simulator_control.h"
#include "trainer/app/automatic_plan.h"
#include "trainer/app/recorder.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/data/examples.h"
#include "trainer/libtorch.h"
#include "trainer/optimizer/learning_rate.h"
#include "trainer/plan/parameters/parameter_table.h"
#include "trainer/pretrained/parameters.h"
#include "trainer/report/report.h"
#include "trainer/runtime/peaks.h"
#include "trainer/step/training_step.h"

namespace spillway::trainer {
namespace {

using Clock = std::chrono::steady_clock;

// An error of the configuration or the machine, with the text for the user.
struct SetupError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct SetupOutOfMemory : std::runtime_error {
  using std::runtime_error::runtime_error;
};

std::vector<at::Device> usable_devices(const RunConfig& run) {
  if (run.device == "cpu") return {at::Device(at::kCPU)};
  const size_t found = at::globalContext().hasCUDA() ? at::detail::getCUDAHooks().getNumGPUs() : 0;
  if (found == 0)
    throw SetupError(
        "no CUDA device: run under 'spillway simulate', or set run.device = \"cpu\" (--device cpu)");
  if (run.devices > found)
    throw SetupError("run.devices is " + std::to_string(run.devices) + ", but there are only " +
                     std::to_string(found));
  const size_t used = run.devices ? run.devices : found;
  std::vector<at::Device> devices;
  devices.reserve(used);
  for (size_t i = 0; i < used; ++i) devices.emplace_back(at::kCUDA, static_cast<at::DeviceIndex>(i));
  return devices;
}

void install_allocator(const Config& config) {
  const RunConfig& run = config.run;
  if (run.device != "cuda") {
    if (run.limit_bytes) throw SetupError("a limit is of device memory, and run.device is \"cpu\"");
    return;
  }
  if (run.allocator != "spillway") {
    if (config.chooses_plan())
      throw SetupError(
          "a plan or a micro-batch is chosen by what Spillway's allocator has left: it needs "
          "run.allocator = \"spillway\"");
    if (run.limit_bytes) throw SetupError("run.limit needs run.allocator = \"spillway\"");
    return;
  }
  std::string error;
  if (!Core::get().loaded() && !Core::install(run.out + "/trace.spill", &error)) throw SetupError(error);
}

// How LibTorch's kernels compute, for the whole process.
void choose_kernels(const Config& config) {
  at::globalContext().setAllowTF32CuBLAS(config.train.numerics.precision == Precision::kTf32);
  if (!config.run.deterministic) return;
  // cuBLAS takes it at its first use: a workspace of one size, or sums in an order that depends on the
  // stream.
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 0);
  at::globalContext().setDeterministicAlgorithms(true, false);
  at::globalContext().setDeterministicFillUninitializedMemory(false);
}

std::string pair_sizes(const PairFile& pairs, const Architecture& model) {
  const auto side = [](const TokenLists& lists, uint32_t longest) {
    return std::to_string(lists.tokens().size()) + " tokens (at most " + std::to_string(longest) + ")";
  };
  const uint64_t tokens = pairs.sources().tokens().size() + pairs.targets().tokens().size();
  const double padding = 1 - double(tokens) / (double(pairs.size()) * model.row_tokens());
  const Vocabulary& vocabulary = pairs.vocabulary();
  return std::to_string(pairs.size()) + " pairs, sources of " +
         side(pairs.sources(), vocabulary.longest_source) + ", targets of " +
         side(pairs.targets(), vocabulary.longest_target) + ", a vocabulary of " +
         std::to_string(vocabulary.size) + ", " + std::to_string(std::lround(100 * padding)) +
         "% of the rows padding";
}

std::string corpus_sizes(const Corpus& corpus, const Architecture& model) {
  if (corpus.pairs()) return pair_sizes(*corpus.pairs(), model);
  std::string bytes = std::to_string(corpus.text_bytes()) + " bytes of text";
  if (corpus.vocabulary().of_bytes) return bytes;
  return std::to_string(corpus.size()) + " tokens of a vocabulary of " +
         std::to_string(corpus.vocabulary().size) + ", made of " + bytes;
}

// Of a loss in nats a token, by the tokens that the corpus has of a byte: of pairs their targets'. None for a
// t5 without pairs, whose loss is of some of the text alone.
std::optional<double> bits_per_byte(double loss, const Corpus& corpus, const Architecture& model) {
  if ((model.has_decoder() && !model.has_pairs()) || corpus.text_bytes() == 0) return std::nullopt;
  return loss / std::numbers::ln2 * double(corpus.size()) / double(corpus.text_bytes());
}

class Run {
 public:
  Run(const Config& config, const TrainOptions& options, RunLog* log, RunHistory* history)
      : config_(config),
        options_(options),
        log_(*log),
        history_(*history),
        core_(Core::get()),
        shape_(config.shape()),
        corpus_(open_corpus(config)),
        checkpoint_(config.run.out + "/" + kCheckpointName),
        recorder_(config_, log, history),
        peaks_(core_) {
    std::string error;
    if (!RunFiles::make_folder(config.run.out, &error)) throw SetupError(error);
    // Set even to what it is: this also has MKL keep to it, which otherwise chooses again for each call, and
    // another count of threads rounds differently.
    at::set_num_threads(config.run.threads ? int(config.run.threads) : at::get_num_threads());
    // MKL's vector functions settle at their first call, and badly if two threads make it at once: alone,
    // here.
    if (config.run.device == "cpu") at::sqrt(at::ones({1}));
    choose_kernels(config);
    install_allocator(config);
    devices_ = usable_devices(config.run);
    machine_.devices = uint32_t(devices_.size());
    if (config.run.device == "cuda") machine_.workspace_bytes = at::cuda::getChosenWorkspaceSize();
    apply_limit();
    check_plans();
    check_weights();
    // Last: a run that does not start leaves the files of the one before it alone.
    if (!recorder_.open(!options.resume.empty(), &error)) throw SetupError(error);
  }

  // `rates`: where those of the history come from.
  Results run(RatesFrom* rates);

 private:
  static Corpus open_corpus(const Config& config) {
    std::string error;
    auto corpus = Corpus::open(config.data.corpus, config.data.validation,
                               Examples::window_tokens(config.model), &error);
    if (!corpus) throw SetupError(error);
    const std::string fault = Examples::fault_of(config.model, corpus->vocabulary());
    if (!fault.empty()) throw SetupError(fault);
    return std::move(*corpus);
  }

  void apply_limit() {
    if (!core_.loaded() || !config_.run.limit_bytes) return;
    for (size_t device = 0; device < devices_.size(); ++device)
      if (core_.limit(int(device), config_.run.limit_bytes) != SPILLWAY_OK)
        throw SetupError(core_.last_error());
  }

  void check(const Plan& plan) const {
    for (const auto& [layer, device] : plan.placement)
      if (device >= devices_.size())
        throw SetupError("the plan puts layer " + std::to_string(layer) + " on device " +
                         std::to_string(device) + ", but there are only " + std::to_string(devices_.size()));
  }

  void check_weights() const {
    std::string error;
    if (!config_.pretrained.empty() && !open_weights(config_.pretrained, Model(config_.model), &error))
      throw SetupError(error);
  }

  void check_plans() const {
    check(config_.plan);
    for (const auto& [step, plan] : config_.schedule) check(plan);
  }

  // Builds the program, from the checkpoint if there is one to resume.
  void build();
  void begin();
  void say_remarks();
  void warn_of(const std::string& remark);
  Plan first_plan() const;
  std::optional<std::string> build_program(const Plan& plan);  // why there was no room for it
  bool step_once();
  bool evaluate();
  StepOutcome run_step(uint64_t step);
  bool checkpoint();
  void end(int code, std::string verdict);
  void train_steps();
  void collect();
  void save();
  bool save_weights(std::string* error);
  uint64_t smallest_limit() const;
  std::string least_need(Plan plan) const;

  const Config config_;
  const TrainOptions options_;
  RunLog& log_;
  RunHistory& history_;
  const Core& core_;
  const Shape shape_;
  const Corpus corpus_;
  const std::string checkpoint_;
  Recorder recorder_;
  PeakWatch peaks_;
  std::vector<at::Device> devices_;
  Machine machine_;
  Survey survey_;
  std::unique_ptr<PlanMoves> moves_;
  std::unique_ptr<TrainingStep> program_;
  std::unique_ptr<RecoverableStep> recoverable_;
  Guarantee start_ =
      Guarantee::kBitExact;     // what the plan that the run began with leaves of the configuration's
  std::set<std::string> said_;  // of the optimizer's remarks
  Results results_;
};

std::optional<std::string> Run::build_program(const Plan& plan) {
  std::optional<std::string> failure;
  try {
    program_ = std::make_unique<TrainingStep>(config_, corpus_, devices_, plan, core_, *moves_);
  } catch (const c10::OutOfMemoryError& error) {
    failure = error.what_without_backtrace();
  }
  if (failure) core_.chosen_move(nullptr);  // taken: no step will ask for it
  return failure;
}

Plan Run::first_plan() const {
  if (!config_.chooses_plan()) return config_.plan;
  const AutomaticPlan automatic = choose_plan(config_, survey_);
  log_.say(LogLevel::kInfo, automatic.text + ": " + to_string(automatic.plan));
  return automatic.plan;
}

// Of a plan that a run begins with in place of another: the same sums, or sums in another order.
Guarantee guarantee_of_start(const Plan& configured, const Plan& begun, uint32_t batch) {
  const auto rows = [batch](const Plan& plan) { return std::min(plan.micro_batch, batch); };
  const bool same = rows(configured) == rows(begun) && configured.head_chunks == begun.head_chunks;
  return same ? Guarantee::kBitExact : Guarantee::kNumericallyEqual;
}

void Run::build() {
  survey_ = survey(config_, machine_, devices_, core_);
  peaks_.watch(core_.loaded() ? devices_.size() : 0);
  Plan plan = options_.resume.empty() ? first_plan() : config_.plan;
  const std::string from = options_.resume + "/" + kCheckpointName;
  std::string error;
  if (!options_.resume.empty()) {
    const auto resumed = plan_of_checkpoint(from, config_, &error);
    if (!resumed) throw SetupError(error);
    plan = *resumed;
    check(plan);
  }
  moves_ = std::make_unique<PlanMoves>(core_, shape_, machine_, config_.recovery.floor);
  if (const auto failure = build_program(plan)) {
    // Before there is a step to undo, the only move that helps is to begin with the moments on the host: the
    // same bits.
    if (plan.optimizer == Place::kHost) throw SetupOutOfMemory(least_need(plan) + *failure);
    plan.optimizer = Place::kHost;
    if (const auto again = build_program(plan)) throw SetupOutOfMemory(least_need(plan) + *again);
    log_.say(LogLevel::kWarning, "no room for the optimizer's state on the device: it starts on the host");
  }
  say_remarks();
  if (!options_.resume.empty() && !load_checkpoint(from, config_, program_.get(), &error))
    throw SetupError(error);
  if (!options_.resume.empty()) warn_of(other_rows_of_checkpoint(from, config_, corpus_));
  if (config_.chooses_plan()) start_ = guarantee_of_start(config_.plan, plan, shape_.batch);
  recoverable_ = std::make_unique<RecoverableStep>(*program_, shape_, machine_, plan, config_.recovery);
}

// Each once: a device may be reached, and a program built, after the first step.
void Run::say_remarks() {
  for (const std::string& remark : program_->optimizer().remarks())
    if (said_.insert(remark).second) warn_of(remark);
}

void Run::warn_of(const std::string& remark) {
  if (!remark.empty()) log_.say(LogLevel::kWarning, remark);
}

// What the plan at the end of all moves would need, so that the user knows how far off the limit is.
std::string Run::least_need(Plan plan) const {
  for (auto moves = neighbours(plan, shape_, machine_, Guarantee::kStatisticsChange); !moves.empty();
       moves = neighbours(plan, shape_, machine_, Guarantee::kStatisticsChange))
    plan = moves.front().to;
  uint64_t most = 0;
  for (const uint64_t bytes : estimate(shape_, plan, machine_).device_peak_bytes)
    most = std::max(most, bytes);
  return "the smallest plan is estimated to need " + std::to_string((most >> 20) + 1) + " MiB of a device; ";
}

void Run::end(int code, std::string verdict) {
  results_.exit_code = code;
  results_.verdict = std::move(verdict);
}

bool Run::checkpoint() {
  std::string error;
  if (save_checkpoint(checkpoint_, config_, corpus_, *program_, recoverable_->plan(), &error)) {
    results_.checkpoint = checkpoint_;
    log_.say(LogLevel::kDebug, "saved " + checkpoint_);
    return true;
  }
  end(kExitError, error);
  return false;
}

uint64_t Run::smallest_limit() const {
  uint64_t least = 0;
  spillway_memory memory;
  for (size_t device = 0; device < devices_.size(); ++device)
    if (core_.query(int(device), &memory) && (least == 0 || memory.limit < least)) least = memory.limit;
  return least;
}

StepOutcome Run::run_step(uint64_t step) {
  peaks_.begin_step();
  const auto start = Clock::now();
  const StepOutcome outcome = recoverable_->run(step);
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  recorder_.recovered(recoverable_->records());
  if (outcome == StepOutcome::kGaveUp) return outcome;
  ++results_.steps;
  results_.tokens += program_->targets();
  results_.seconds += seconds;
  const std::vector<spillway_memory> memory = peaks_.of_step();
  recorder_.done({.number = step,
                  .loss = program_->loss(),
                  .gradient_norm = program_->gradient_norm(),
                  .learning_rate = learning_rate(config_.train, step),
                  .seconds = seconds,
                  .tokens = program_->targets(),
                  .plan = recoverable_->plan(),
                  .memory = memory,
                  .memory_of_run = peaks_.of_run(memory)});
  return outcome;
}

bool Run::step_once() {
  const uint64_t step = program_->step();
  const Plan before = recoverable_->plan();
  std::string error;
  if (const auto entry = config_.schedule.find(step); entry != config_.schedule.end())
    if (!recoverable_->follow(step, entry->second, &error))
      return end(kExitOutOfMemory, "there is no room for the plan that the schedule has for step " +
                                       std::to_string(step) + ": " + error),
             false;
  if (recoverable_->plan() != before) recorder_.moved(step, "schedule", recoverable_->plan());
  if (run_step(step) == StepOutcome::kGaveUp)
    return end(kExitOutOfMemory, "out of memory in step " + std::to_string(step) +
                                     " and no plan is left: " + recoverable_->last_failure()),
           false;
  const Plan ran = recoverable_->plan();
  recoverable_->maybe_grow_back(step, smallest_limit());
  if (recoverable_->plan() != ran) recorder_.moved(step + 1, "grow_back", recoverable_->plan());
  say_remarks();
  return true;
}

bool Run::evaluate() {
  program_->begin_evaluation();
  const auto outcome = recoverable_->run_evaluation(
      program_->step(),
      [](void* program, const Plan& plan) { return static_cast<TrainingStep*>(program)->evaluate(plan); },
      program_.get());
  program_->end_evaluation();
  recorder_.recovered(recoverable_->records());
  if (outcome == StepOutcome::kGaveUp)
    return end(kExitOutOfMemory,
               "out of memory while evaluating and no plan is left: " + recoverable_->last_failure()),
           false;
  results_.evaluation_loss = program_->evaluation_loss();
  results_.bits_per_byte = bits_per_byte(*results_.evaluation_loss, corpus_, config_.model);
  recorder_.evaluated(program_->step(), *results_.evaluation_loss, results_.unigram_entropy);
  return true;
}

void Run::train_steps() {
  while (program_->step() < config_.train.steps) {
    if (!step_once()) {
      if (checkpoint()) results_.exit_code = kExitOutOfMemory;
      return;
    }
    const uint64_t step = program_->step();
    const bool last = step == config_.train.steps;
    if (!last && config_.evaluation.every && step % config_.evaluation.every == 0 && !evaluate()) {
      checkpoint();
      return;
    }
    if (config_.run.checkpoint_every && step % config_.run.checkpoint_every == 0 && !checkpoint()) return;
    if (options_.stop && options_.stop->load()) {
      if (checkpoint()) end(kExitInterrupted, "interrupted after step " + std::to_string(step - 1));
      return;
    }
  }
  if (!evaluate()) {
    checkpoint();
    return;
  }
  end(kExitDone, "done");
}

// False on a simulated card in null mode: kernels do nothing there and every read gives zeros.
bool values_are_computed() {
  void* driver = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (driver == nullptr) return true;
  const auto control =
      reinterpret_cast<SpillwaySimulatorControlFunction>(::dlsym(driver, "spillway_simulator_control"));
  const bool computed = control == nullptr || control()->mode() == SPILLWAY_SIMULATOR_COMPUTE;
  ::dlclose(driver);
  return computed;
}

void Run::collect() {
  results_.values_computed = config_.run.device != "cuda" || values_are_computed();
  results_.last_loss = results_.steps ? program_->loss() : 0;
  results_.weights_hash = program_->parameters().hash();
  results_.skipped_steps = program_->loss_scale().state().skipped;
  results_.plan = recoverable_->plan();
  results_.guarantee_held = std::max(recoverable_->guarantee_held(), start_);
  results_.records = recoverable_->records();
  if (!core_.loaded()) return;
  results_.trace = core_.trace_path();
  results_.memory = peaks_.of_run(peaks_.of_step());
  size_t count = 0;
  core_.query_strategies(nullptr, 0, &count);
  results_.strategies.assign(count, {});
  for (spillway_strategy_counts& counts : results_.strategies) counts.size = sizeof counts;
  core_.query_strategies(results_.strategies.data(), count, &count);
}

bool Run::save_weights(std::string* error) {
  try {
    return save_parameters(config_.run.save, program_->model(), program_->trained_weights(), error);
  } catch (const c10::Error& failure) {
    *error = failure.what_without_backtrace();
  } catch (const std::exception& failure) {
    *error = failure.what();
  }
  return false;
}

void Run::save() {
  std::string error;
  if (config_.run.save.empty() || results_.exit_code != kExitDone) return;
  if (!save_weights(&error)) {
    if (checkpoint())
      end(kExitError, "the weights could not be saved, but a checkpoint holds them: " + error);
    return;
  }
  log_.say(LogLevel::kInfo, "saved " + config_.run.save + " (config.json, model.safetensors)");
}

void Run::begin() {
  char text[480];
  std::snprintf(text, sizeof text,
                "%.1f M parameters, %s (unigram entropy %.4f nat), %s, %zu device(s), estimate:\n",
                double(parameter_count(shape_.model)) / 1e6, corpus_sizes(corpus_, config_.model).c_str(),
                results_.unigram_entropy, config_.run.device.c_str(), devices_.size());
  const Plan& plan = recoverable_->plan();
  recorder_.began(plan, text + estimate(shape_, plan, machine_).to_text());
  history_.begin(shape_, survey_.machine, plan);
}

Results Run::run(RatesFrom* rates) {
  results_.out = config_.run.out;
  results_.unigram_entropy = corpus_.unigram_entropy();
  build();
  *rates = survey_.from;
  begin();
  train_steps();
  collect();
  save();
  if (!recorder_.healthy() && results_.exit_code == kExitDone)
    end(kExitError, "losses.txt or plan_schedule.toml could not be written to their end (disk full?)");
  return std::move(results_);
}

Results failed(int code, std::string verdict) {
  Results results;
  if (Core::get().loaded()) results.trace = Core::get().trace_path();
  results.exit_code = code;
  results.verdict = std::move(verdict);
  return results;
}

Results ran(const Config& config, const TrainOptions& options, RunLog* log, RunHistory* history,
            RatesFrom* rates) {
  try {
    Run run(config, options, log, history);
    return run.run(rates);
  } catch (const SetupError& error) {
    return failed(kExitUsage, error.what());
  } catch (const SetupOutOfMemory& error) {
    return failed(kExitOutOfMemory,
                  std::string("no room for the parameters, gradients and optimizer state: ") + error.what());
  } catch (const c10::Error& error) {
    return failed(kExitError, error.what_without_backtrace());
  } catch (const std::exception& error) {
    return failed(kExitError, std::string("stopped by an error of the host: ") + error.what());
  }
}

// A run that did not begin leaves what an earlier one reported.
void report(const Config& config, const RunHistory& history, RatesFrom rates, RunLog* log, Results* results) {
  if (!history.begun()) return;
  const RunReport report{.verdict = results->verdict,
                         .model = to_string(config.model),
                         .history = history,
                         .rates_measured = rates == RatesFrom::kMeasured,
                         .rates_from = name_of(rates)};
  std::string error;
  if (write_report(report, config.run.out, &error))
    results->report = config.run.out + "/report.txt";
  else
    log->say(LogLevel::kWarning, error);
}

}  // namespace

Results train(const Config& config, const TrainOptions& options) {
  RunLog log(config.run.log_level, options.quiet);
  RunHistory history;
  RatesFrom rates = RatesFrom::kNoCard;
  Results results = ran(config, options, &log, &history, &rates);
  report(config, history, rates, &log, &results);
  log.end(results.verdict, results.exit_code);
  return results;
}

}  // namespace spillway::trainer
