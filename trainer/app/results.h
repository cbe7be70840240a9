// What a run came to: the table at its end, and the same as JSON.
//
// Thread-safety: values and pure functions. Units: as the names say; losses in nats per token.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "spillway/spillway.h"
#include "trainer/ranks/incident.h"
#include "trainer/step/recoverable_step.h"

namespace spillway::trainer {

// The documented exit codes of spillway-train.
enum ExitCode : int {
  kExitDone = 0,
  kExitError = 1,
  kExitUsage = 2,                   // the command line or the configuration
  kExitOutOfMemory = 17,            // no plan is left that fits; the checkpoint holds the last committed step
  kExitOtherRank = kExitOfIncident  // 18: another rank of the same training failed, or this one hangs
  // Above 128: by a signal, which `exit_code_of_signal` gives; the checkpoint holds the last committed step
};

struct Results {
  std::string verdict;  // one line
  int exit_code = kExitDone;
  uint64_t steps = 0, tokens = 0;
  uint64_t skipped_steps = 0;  // after an overflow of float16
  double seconds = 0, last_loss = 0;
  std::optional<double> unigram_entropy;  // of the corpus, where the losses are of its text
  std::optional<double> evaluation_loss;
  std::optional<double> bits_per_byte;  // of the text that the corpus was made of, by the evaluation loss
  bool values_computed = true;          // false: a simulated card in null mode, all values are zeros
  uint64_t weights_hash = 0;
  Plan plan;
  Guarantee guarantee_held = Guarantee::kBitExact;
  std::vector<RecoveryRecord> records;
  std::vector<spillway_strategy_counts> strategies;  // in-place and by plan, from the core
  std::vector<spillway_memory> memory;               // a device each
  std::string out, trace, page, checkpoint;          // page: of the trace's report; "": there is none
  std::string report;                                // the run's, as text; "": there is none
  std::optional<Incident> incident;                  // that ended all ranks
  std::optional<uint32_t> ended_by;                  // the rank for which all end; nothing: this one
};

std::string to_table(const Results& results);
std::string to_json(const Results& results);

}  // namespace spillway::trainer
