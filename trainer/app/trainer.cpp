#include "trainer/app/trainer.h"

#include <exception>

#include "trainer/app/run/run.h"
#include "trainer/report/report.h"

namespace spillway::trainer {
namespace {

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
  } catch (const RecordLost& error) {
    return failed(kExitError, error.what() + std::string("; --resume goes on from the last checkpoint"));
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
