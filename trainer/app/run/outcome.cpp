#include "trainer/app/run/outcome.h"

#include <exception>

#include "trainer/app/run/run.h"
#include "trainer/ranks/exchange.h"

namespace spillway::trainer {
namespace {

RunOutcome failed(int code, std::string verdict) {
  Results results;
  if (Core::get().loaded()) results.trace = Core::get().trace_path();
  results.exit_code = code;
  results.verdict = std::move(verdict);
  return {.results = std::move(results)};
}

}  // namespace

RunOutcome outcome_of(const std::function<Results()>& run) {
  try {
    return {.results = run()};
  } catch (const RanksEnded& ended) {
    RunOutcome outcome = failed(kExitOtherRank, ended.what());
    outcome.results.incident = ended.incident;
    return outcome;
  } catch (const SetupError& error) {
    return failed(kExitUsage, error.what());
  } catch (const SetupOutOfMemory& error) {
    return failed(kExitOutOfMemory,
                  std::string("no room for the parameters, gradients and optimizer state: ") + error.what());
  } catch (const RanksError& error) {
    RunOutcome outcome = failed(kExitError, error.what());
    outcome.all_end_so = true;
    return outcome;
  } catch (const BrokenRound& error) {
    return failed(kExitError, error.what());
  } catch (const RecordLost& error) {
    return failed(kExitError, error.what() + std::string("; --resume goes on from the last checkpoint"));
  } catch (const c10::OutOfMemoryError& error) {
    return failed(kExitError, std::string("out of memory where nothing can be undone: ") +
                                  error.what_without_backtrace() +
                                  "; --resume goes on from the last checkpoint");
  } catch (const c10::Error& error) {
    return failed(kExitError, error.what_without_backtrace());
  } catch (const std::exception& error) {
    return failed(kExitError, std::string("stopped by an error of the host: ") + error.what());
  }
}

}  // namespace spillway::trainer
