#include "trainer/app/recorder.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/printed.h"

namespace spillway::trainer {
namespace {

using Clock = std::chrono::steady_clock;
using Event = nlohmann::ordered_json;

double mib(uint64_t bytes) {
  return double(bytes) / 0x1p20;
}

Event event_of(const char* name) {
  return {{"event", name}};
}

Event memory_event(const std::vector<spillway_memory>& devices) {
  Event all = Event::array();
  for (const spillway_memory& memory : devices)
    all.push_back({{"device", memory.device},
                   {"live_bytes", memory.live},
                   {"live_peak_bytes", memory.peak_live},
                   {"reserved_bytes", memory.reserved},
                   {"reserved_peak_bytes", memory.peak_reserved},
                   {"limit_bytes", memory.limit}});
  return all;
}

Event step_event(const DoneStep& step) {
  Event event = event_of("step");
  event["step"] = step.number;
  event["loss"] = step.loss;
  event["gradient_norm"] = step.gradient_norm;
  event["learning_rate"] = step.learning_rate;
  event["seconds"] = step.seconds;
  event["tokens_per_second"] = step.tokens_per_second();
  event["devices"] = memory_event(step.memory);
  event["plan"] = to_string(step.plan);
  return event;
}

// What all ranks did for one of them.
std::string text_of(const AskedUndo& asked) {
  const std::string rank = "rank " + std::to_string(asked.rank);
  if (!asked.why_all_end.empty()) return asked.why_all_end + ": all ranks undo the step and end";
  return "all ranks undo the step for " + rank + " and begin attempt " + std::to_string(asked.attempt) +
         " (" + name_of(asked.guarantee) + "), there from " + to_string(asked.before) + " to " +
         to_string(asked.after);
}

// "out of memory in backward (incident 3): recompute", and whose it was where that is another rank.
std::string text_of(const RecoveryRecord& record) {
  const bool is_others = record.asked && !record.asked->is_this_rank;
  const std::string whose = is_others ? "rank " + std::to_string(record.asked->rank) + " " : "";
  const std::string text = "step " + std::to_string(record.step) + ": " + whose + "out of memory in " +
                           record.phase + " (incident " + std::to_string(record.incident) +
                           "): " + record.action;
  return record.asked ? text + "; " + text_of(*record.asked) : text;
}

Event recovery_event(const RecoveryRecord& record) {
  Event event = event_of("recovery");
  event["step"] = record.step;
  event["phase"] = record.phase;
  event["incident"] = record.incident;
  event["action"] = record.action;
  event["plan"] = to_string(record.plan);
  event["reason"] = record.reason;
  if (record.asked) event["rank"] = record.asked->rank;
  return event;
}

EventFile::Scalars scalars_of(const DoneStep& step) {
  EventFile::Scalars scalars = {{"loss", step.loss},
                                {"gradient_norm", step.gradient_norm},
                                {"learning_rate", step.learning_rate},
                                {"tokens_per_second", step.tokens_per_second()}};
  for (const spillway_memory& memory : step.memory) {
    const std::string device = "/device" + std::to_string(memory.device);
    scalars.emplace_back("live_peak_bytes" + device, double(memory.peak_live));
    scalars.emplace_back("reserved_peak_bytes" + device, double(memory.peak_reserved));
  }
  return scalars;
}

void without_curves(const std::string& why, RunLog* log) {
  log->say(LogLevel::kWarning, why + ": the training goes on without TensorBoard's file");
}

std::string memory_text(const std::vector<spillway_memory>& devices) {
  if (devices.empty()) return "";
  char text[96];
  std::snprintf(text, sizeof text, "MiB %.0f peak %.0f of %.0f", mib(devices[0].live),
                mib(devices[0].peak_reserved), mib(devices[0].limit));
  return text;
}

std::string step_line(const DoneStep& step, uint64_t steps) {
  char text[200];
  std::snprintf(text, sizeof text, "step %llu/%llu  loss %.4f  norm %.3f  lr %.2e  %.0f tokens/s",
                (unsigned long long)step.number + 1, (unsigned long long)steps, step.loss, step.gradient_norm,
                step.learning_rate, step.tokens_per_second());
  const std::string memory = memory_text(step.memory_of_run);
  return text + (memory.empty() ? "" : "  " + memory) + "  " + to_string(step.plan);
}

std::vector<DevicePeaks> peaks_of(const std::vector<spillway_memory>& devices) {
  std::vector<DevicePeaks> peaks;
  peaks.reserve(devices.size());
  for (const spillway_memory& memory : devices)
    peaks.push_back({.live = memory.peak_live, .reserved = memory.peak_reserved, .limit = memory.limit});
  return peaks;
}

}  // namespace

Recorder::Recorder(const Config& config, RunLog* log, RunHistory* history)
    : config_(config), log_(*log), history_(*history), start_(Clock::now()) {}

bool Recorder::open(bool resumed, std::string* error) {
  const RunConfig& run = config_.run;
  if (!files_.open(run.out, resumed, error)) return false;
  log_.open(run.out, resumed, run.log_json);
  std::string why;
  if (run.tensorboard && !curves_.open(run.out, resumed, &why)) without_curves(why, &log_);
  return true;
}

void Recorder::began(const Plan& plan, const std::string& text) {
  log_.say(LogLevel::kInfo, text);
  Event event = event_of("begin");
  event["model"] = to_string(config_.model);
  event["steps"] = config_.train.steps;
  event["plan"] = to_string(plan);
  log_.record(event);
  start_ = Clock::now();
}

void Recorder::recovered(const std::vector<RecoveryRecord>& all) {
  for (; told_ < all.size(); ++told_) {
    const RecoveryRecord& record = all[told_];
    log_.say(LogLevel::kWarning, text_of(record) + ", now " + to_string(record.plan));
    log_.record(recovery_event(record));
    history_.add(PlanMove{.step = record.step,
                          .action = record.action,
                          .phase = record.phase,
                          .incident = record.incident,
                          .reason = record.reason,
                          .to = record.plan,
                          .asked = record.asked});
    disturbed_ = true;
  }
}

void Recorder::moved(uint64_t step, const char* action, const Plan& to) {
  log_.say(LogLevel::kDebug, "step " + std::to_string(step) + ": " + action + ", now " + to_string(to));
  Event event = event_of("plan");
  event["step"] = step;
  event["action"] = action;
  event["plan"] = to_string(to);
  log_.record(event);
  history_.add(PlanMove{.step = step, .action = action, .phase = "", .incident = 0, .reason = "", .to = to});
  disturbed_ = true;
}

Progress Recorder::progress_of(const DoneStep& step) const {
  const double passed = std::chrono::duration<double>(Clock::now() - start_).count();
  const double left = double(config_.train.steps - step.number - 1);
  return {.done = step.number + 1,
          .steps = config_.train.steps,
          .loss = step.loss,
          .tokens_per_second = step.tokens_per_second(),
          .seconds_left = passed / double(steps_) * left,
          .memory = memory_text(step.memory_of_run),
          .plan = to_string(step.plan)};
}

void Recorder::remember(const DoneStep& step) {
  history_.add({.number = step.number,
                .plan = step.plan,
                .loss = step.loss,
                .seconds = step.seconds,
                .tokens = step.tokens,
                .undisturbed = !disturbed_,
                .devices = peaks_of(step.memory)});
  disturbed_ = false;
}

void Recorder::draw(uint64_t step, const EventFile::Scalars& scalars) {
  std::string why;
  if (!curves_.write(step, scalars, &why)) without_curves(why, &log_);
}

void Recorder::done(const DoneStep& step) {
  files_.loss(step.number, step.loss, step.gradient_norm);
  files_.plan(step.number, step.plan);
  ++steps_;
  log_.step(step_line(step, config_.train.steps), progress_of(step));
  log_.record(step_event(step));
  draw(step.number, scalars_of(step));
  remember(step);
}

void Recorder::evaluated(uint64_t steps, double loss, std::optional<double> unigram_entropy) {
  files_.evaluation(steps, loss);
  std::string text = printed("step %llu  evaluation loss %.4f", (unsigned long long)steps, loss);
  if (unigram_entropy) text += printed(" (unigram entropy %.4f)", *unigram_entropy);
  log_.say(LogLevel::kInfo, text);
  Event event = event_of("evaluation");
  event["step"] = steps;
  event["loss"] = loss;
  log_.record(event);
  draw(steps, {{"evaluation_loss", loss}});
  history_.add(EvaluationPoint{.step = steps, .loss = loss});
}

}  // namespace spillway::trainer
