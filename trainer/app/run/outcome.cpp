#include "trainer/app/run/outcome.h"

#include <exception>

#include "trainer/app/run/run.h"
#include "trainer/ranks/exchange.h"
#include "trainer/residency/host_tensor.h"
#include "trainer/runtime/out_of_memory.h"

namespace spillway::trainer {
namespace {

RunOutcome failed(int code, std::string verdict) {
  Results results;
  if (Core::get().loaded()) results.trace = Core::get().trace_path();
  results.exit_code = code;
  results.verdict = std::move(verdict);
  return {.results = std::move(results)};
}

// For the report too.
std::optional<RunOutcome> failed_on_host(const std::exception& error) {
  const std::optional<uint64_t> bytes = refused_by_host(error);
  if (!bytes) return std::nullopt;
  Core::get().note_host_failure(0, *bytes, false);
  return failed(kExitOutOfMemory, "out of memory: the host has no " +
                                      (*bytes == 0 ? "more" : std::to_string(*bytes) + " bytes") +
                                      " for this run; --resume goes on from the last checkpoint");
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
    return failed(kExitOutOfMemory, error.what());
  } catch (const RanksError& error) {
    RunOutcome outcome = failed(kExitError, error.what());
    outcome.of = FaultOf::kAll;
    return outcome;
  } catch (const BrokenRound& error) {
    return failed(kExitError, error.what());
  } catch (const RecordLost& error) {
    return failed(kExitError, error.what() + std::string("; --resume goes on from the last checkpoint"));
  } catch (const c10::OutOfMemoryError& error) {
    if (const auto* host = dynamic_cast<const HostOutOfMemory*>(&error)) host->note(false);
    return failed(kExitError, std::string("out of memory where nothing can be undone: ") +
                                  error.what_without_backtrace() +
                                  "; --resume goes on from the last checkpoint");
  } catch (const c10::Error& error) {
    if (auto outcome = failed_on_host(error)) return *std::move(outcome);
    RunOutcome outcome = failed(kExitError, error.what_without_backtrace());
    outcome.of = FaultOf::kThisOrAnother;
    return outcome;
  } catch (const std::exception& error) {
    if (auto outcome = failed_on_host(error)) return *std::move(outcome);
    return failed(kExitError, std::string("stopped by an error of the host: ") + error.what());
  }
}

}  // namespace spillway::trainer
