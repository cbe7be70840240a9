#include "trainer/app/trainer.h"

#include <filesystem>

#include "trainer/app/run/outcome.h"
#include "trainer/app/run/run.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/report/report.h"

namespace spillway::trainer {
namespace {

// A launcher that starts the ranks again gives them the same command line: they go on from the checkpoint
// that this run has left, if there is one, wherever the first start began. That of an earlier run is set
// aside at the first start, so that it is not taken for this run's.
std::string resumed_from(const std::string& asked, const std::string& out, const Launch& launch,
                         RunLog* log) {
  const std::filesystem::path checkpoint = std::filesystem::path(out) / kCheckpointName;
  std::error_code none;
  if (!launch.repeats || !std::filesystem::exists(checkpoint, none)) return asked;
  if (launch.started_again) return out;
  const bool is_wanted = !asked.empty() && std::filesystem::equivalent(asked, out, none);
  // One that is mistyped does not begin.
  const bool begins =
      asked.empty() || std::filesystem::exists(std::filesystem::path(asked) / kCheckpointName, none);
  if (launch.rank == 0 && begins && !is_wanted) {
    const std::string aside = set_aside(checkpoint.string());
    if (!aside.empty()) log->say(LogLevel::kWarning, set_aside_text(aside));
  }
  return asked;
}

// The folder of a checkpoint, where the file itself is given.
std::string folder_of(const std::string& resume) {
  const std::filesystem::path path(resume);
  std::error_code none;
  if (path.filename() != kCheckpointName || !std::filesystem::is_regular_file(path, none)) return resume;
  return path.has_parent_path() ? path.parent_path().string() : ".";
}

// A run that did not begin leaves what an earlier one reported.
// The text says why it could not be written.
std::string report(const Config& config, const RunHistory& history, RatesFrom rates,
                   std::optional<RankPart> rank, Results* results) {
  if (!history.begun()) return "";
  if (rank) rank->incident = results->incident;
  const RunReport report{.verdict = results->verdict,
                         .model = to_string(config.model),
                         .history = history,
                         .rates_measured = rates == RatesFrom::kMeasured,
                         .rates_from = name_of(rates),
                         .rank = std::move(rank)};
  std::string error;
  if (write_report(report, config.run.out, &error)) results->report = config.run.out + "/report.txt";
  return error;
}

}  // namespace

Results train(const Config& configured, const TrainOptions& given) {
  Config config = configured;
  TrainOptions options = given;
  RunLog log(config.run.log_level, options.quiet || options.launch.rank > 0);
  options.resume = resumed_from(folder_of(options.resume), config.run.out, options.launch, &log);
  if (options.launch.rank > 0) config.run.out += "/rank-" + std::to_string(options.launch.rank);
  RunHistory history;
  RatesFrom rates = RatesFrom::kNoCard;
  RankEnd rank_end([&](Results* results) {
    results->out = config.run.out;
    if (const auto held = history.hold()) report(config, history, rates, rank_end.part(), results);
    if (options.tell_when_held_up) options.tell_when_held_up(*results);
  });
  std::unique_ptr<Run> run;
  auto [results, fault_of] = outcome_of([&] {
    run = std::make_unique<Run>(config, options, &log, &history, &rank_end);
    return run->run(&rates);
  });
  rank_end.settle(&results, fault_of);
  // A communicator whose other ranks are gone may wait for them for ever when it is destroyed, and so may
  // memory that it uses: both go with the process.
  // NOLINTNEXTLINE(bugprone-unused-return-value)
  if (results.incident) static_cast<void>(run.release());
  run.reset();
  const std::string error = report(config, history, rates, rank_end.part(), &results);
  if (!error.empty()) log.say(LogLevel::kWarning, error);
  log.end(results.verdict, results.exit_code);
  rank_end.finish();
  return results;
}

}  // namespace spillway::trainer
