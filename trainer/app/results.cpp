#include "trainer/app/results.h"

#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/printed.h"

namespace spillway::trainer {
namespace {

constexpr double kMiB = 0x1p20;

const char* what_held(Guarantee guarantee) {
  switch (guarantee) {
    case Guarantee::kBitExact:
      return "bit_exact: losses and weights are those of a run with room";
    case Guarantee::kNumericallyEqual:
      return "numerically_equal: losses and weights are those of a run with this plan schedule";
    case Guarantee::kStatisticsChange:
      return "statistics_change: losses and weights are those of no run with one configuration";
  }
  return "?";
}

// ": 0.1520 nat below the unigram entropy of the corpus (3.3296)".
std::string beside_entropy(const Results& results) {
  const double loss = results.evaluation_loss.value_or(NAN);
  if (!results.unigram_entropy || !std::isfinite(loss)) return "";
  const double below = *results.unigram_entropy - loss;
  return printed(": %.4f nat %s the unigram entropy of the corpus (%.4f)", std::abs(below),
                 below < 0 ? "above" : "below", *results.unigram_entropy);
}

void append_values(std::string* text, const Results& results) {
  if (!results.values_computed) {
    *text += "values            none: this simulated card computes nothing (--values compute does)\n";
    return;
  }
  *text += printed("training loss     %.4f\n", results.last_loss);
  if (results.evaluation_loss)
    *text += printed("evaluation loss   %.4f", *results.evaluation_loss) + beside_entropy(results) + "\n";
  if (results.bits_per_byte) *text += printed("bits per byte     %.4f\n", *results.bits_per_byte);
  *text += printed("weights           %016llx\n", (unsigned long long)results.weights_hash);
  *text += printed("guarantee         %s\n", what_held(results.guarantee_held));
}

void append_memory(std::string* text, const spillway_memory& memory) {
  *text += printed("device %d          peak %.1f of %.1f MiB (%.1f%%), live at most %.1f MiB\n",
                   memory.device, double(memory.peak_reserved) / kMiB, double(memory.limit) / kMiB,
                   memory.limit ? 100.0 * double(memory.peak_reserved) / double(memory.limit) : 0.0,
                   double(memory.peak_live) / kMiB);
  *text += printed(
      "  failures        %llu: %llu served in place (%.1f MiB, %llu us), %llu by a change of plan, %llu "
      "not\n",
      (unsigned long long)memory.failures, (unsigned long long)memory.rescued,
      double(memory.rescued_bytes) / kMiB, (unsigned long long)memory.rescue_us,
      (unsigned long long)memory.unwound, (unsigned long long)memory.gave_up);
}

void append_report(std::string* text, const Results& results) {
  if (!results.trace.empty()) *text += "report            spillway report " + results.trace + "\n";
  if (!results.page.empty()) *text += "page              " + results.page + "\n";
}

}  // namespace

std::string to_table(const Results& results) {
  std::string text = "\n== spillway-train: " + results.verdict + "\n";
  if (results.incident) text += "incident          " + results.incident->number + "\n";
  if (results.steps == 0) {  // nothing was trained, so nothing is claimed
    append_report(&text, results);
    return text;
  }
  text += printed("steps             %llu, %llu tokens in %.1f s: %.0f tokens/s\n",
                  (unsigned long long)results.steps, (unsigned long long)results.tokens, results.seconds,
                  results.seconds > 0 ? double(results.tokens) / results.seconds : 0.0);
  if (results.skipped_steps)
    text += printed("skipped           %llu steps, whose gradients overflowed\n",
                    (unsigned long long)results.skipped_steps);
  append_values(&text, results);
  text += "plan              " + to_string(results.plan) + "\n";
  for (const spillway_memory& memory : results.memory) append_memory(&text, memory);
  if (!results.strategies.empty()) {
    text += printed("%-26s %8s %8s %12s %12s\n", "strategy", "tried", "useful", "MiB", "us");
    for (const spillway_strategy_counts& counts : results.strategies)
      text += printed("  %-24s %8llu %8llu %12.1f %12llu\n", counts.name, (unsigned long long)counts.tried,
                      (unsigned long long)counts.useful, double(counts.bytes) / kMiB,
                      (unsigned long long)counts.microseconds);
  }
  if (!results.records.empty())
    text += printed("%6s %8s %-12s %-24s %14s %12s  %s\n", "step", "incident", "phase", "what was done",
                    "MiB predicted", "us", "plan after it");
  for (const RecoveryRecord& record : results.records)
    text += printed("%6llu %8llu %-12s %-24s %14.1f %12llu  %s\n", (unsigned long long)record.step,
                    (unsigned long long)record.incident, record.phase.c_str(), record.action.c_str(),
                    double(record.bytes_predicted) / kMiB, (unsigned long long)record.microseconds,
                    to_string(record.plan).c_str());
  text += "files             " + results.out + " (losses.txt, plan_schedule.toml, train.log)\n";
  if (!results.report.empty()) text += "run's report      " + results.report + " (report.svg, report.json)\n";
  if (!results.checkpoint.empty()) text += "checkpoint        " + results.checkpoint + "\n";
  append_report(&text, results);
  return text;
}

std::string to_json(const Results& results) {
  nlohmann::json json = {
      {"verdict", results.verdict},
      {"exit_code", results.exit_code},
      {"steps", results.steps},
      {"skipped_steps", results.skipped_steps},
      {"tokens", results.tokens},
      {"seconds", results.seconds},
      {"training_loss", results.last_loss},
      {"unigram_entropy",
       results.unigram_entropy ? nlohmann::json(*results.unigram_entropy) : nlohmann::json()},
      {"plan", to_string(results.plan)},
      {"guarantee", name_of(results.guarantee_held)},
      {"out", results.out},
      {"trace", results.trace},
      {"page", results.page},
      {"checkpoint", results.checkpoint},
      {"report", results.report}};
  json["incident"] = results.incident ? nlohmann::json{{"number", results.incident->number},
                                                       {"rank", results.incident->rank},
                                                       {"cause", results.incident->cause}}
                                      : nlohmann::json();
  char hash[20];
  std::snprintf(hash, sizeof hash, "%016llx", (unsigned long long)results.weights_hash);
  json["weights"] = hash;
  json["tokens_per_second"] = results.seconds > 0 ? double(results.tokens) / results.seconds : 0.0;
  json["evaluation_loss"] =
      results.evaluation_loss ? nlohmann::json(*results.evaluation_loss) : nlohmann::json();
  json["bits_per_byte"] = results.bits_per_byte ? nlohmann::json(*results.bits_per_byte) : nlohmann::json();
  json["recoveries"] = nlohmann::json::array();
  for (const RecoveryRecord& record : results.records)
    json["recoveries"].push_back(
        {{"step", record.step},
         {"attempt", record.attempt},
         {"phase", record.phase},
         {"action", record.action},
         {"guarantee", name_of(record.guarantee)},
         {"incident", record.incident},
         {"bytes_predicted", record.bytes_predicted},
         {"us", record.microseconds},
         {"plan", to_string(record.plan)},
         {"rank", record.asked ? nlohmann::json(record.asked->rank) : nlohmann::json()}});
  json["strategies"] = nlohmann::json::array();
  for (const spillway_strategy_counts& counts : results.strategies)
    json["strategies"].push_back({{"name", counts.name},
                                  {"tried", counts.tried},
                                  {"useful", counts.useful},
                                  {"bytes", counts.bytes},
                                  {"us", counts.microseconds}});
  json["devices"] = nlohmann::json::array();
  for (const spillway_memory& memory : results.memory)
    json["devices"].push_back({{"device", memory.device},
                               {"limit", memory.limit},
                               {"peak_reserved", memory.peak_reserved},
                               {"peak_live", memory.peak_live},
                               {"failures", memory.failures},
                               {"rescued", memory.rescued},
                               {"unwound", memory.unwound},
                               {"gave_up", memory.gave_up},
                               {"rescued_bytes", memory.rescued_bytes},
                               {"rescue_us", memory.rescue_us},
                               {"driver_calls", memory.driver_calls}});
  return json.dump(2) + "\n";
}

}  // namespace spillway::trainer
