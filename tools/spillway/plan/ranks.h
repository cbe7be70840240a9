// The ranks of a training that `estimate` and `plan` look at one of: how they share the batch and the states,
// and what links them.
//
// Thread-safety: plain values. Errors: a text that names the option.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "tools/spillway/plan/gpu.h"
#include "tools/spillway/plan/workload.h"

namespace spillway::tools {

struct RankOptions {
  uint32_t ranks = 1;
  std::optional<uint32_t> zero;
  std::optional<uint32_t> stages;             // of a pipeline; else the configuration's
  bool any_zero = false, any_stages = false;  // whichever is fastest
  bool is_open() const { return any_zero || any_stages; }
  // Ranks on each machine, and gigabits a second of each rank's link to the others.
  std::optional<uint32_t> per_machine;
  std::optional<double> network;
};

// `can_choose`: "auto" is a number too.
void declare_ranks(CLI::App& app, RankOptions* options, bool can_choose);
void declare_links(CLI::App& app, RankOptions* options);

// The workload becomes that of the rank with most rows.
std::string share_among_ranks(const RankOptions& options, Workload* workload);

// Between cards of this kind. Within a machine as fast as copies between two of them.
trainer::RankLinks links_of(const Gpu& gpu, const RankOptions& options);

// "16 ranks share 64 rows a step, 24 GB/s between two ranks of a machine; 2 machines, 25 GB/s a rank between
// machines"; "" for a rank that is alone.
std::string ranks_text(const Workload& workload, const trainer::RankLinks& links);

}  // namespace spillway::tools
