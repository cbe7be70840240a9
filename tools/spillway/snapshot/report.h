// The findings as text for people and as JSON for programs, of a snapshot and of other histories.
//
// Thread-safety: pure functions.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "tools/spillway/history/findings/findings.h"
#include "tools/spillway/history/last_events.h"
#include "tools/spillway/replay/counterfactuals.h"

namespace spillway::tools {

// A text report shows so many, of traces too.
inline constexpr size_t kHoldersShown = 12;

struct SnapshotReport {
  const std::string& path;
  const MemoryHistory& snapshot;
  const HistoryFindings& findings;
  const Counterfactuals* fitted = nullptr;  // null: that is not shown
  const char* file = "PyTorch memory snapshot";
  uint64_t events = 20;  // how many lines the last events have
};

// A term of the equation of Holdings; `key` is its name in the JSON, before "_bytes".
struct HoldingTerm {
  const char *key, *name, *meaning;
};
inline constexpr HoldingTerm kHoldingTerms[] = {
    {"in_use", "in use", "asked for by the program and not freed"},
    {"rounding", "rounding", "given beyond what was asked for"},
    {"pending", "pending", "freed, but other streams may still use it"},
    {"idle", "idle", "free inside what the allocator holds"},
    {"elsewhere", "elsewhere", "free inside what it holds for other pools and streams"},
    {"free", "free", "of the card, besides that"},
    {"outside", "outside", "CUDA context, other libraries, other processes"}};

// Before the failure that is told of, or the end.
LastEvents last_events_of(const SnapshotReport& report);

// Who held what at the moment that the findings are of; of a trace too. `title`: a heading. `older_bytes`:
// what was in use besides, of before the history.
std::string held_text(const HistoryFindings& found, const std::string& title, uint64_t older_bytes = 0);
nlohmann::ordered_json held_json(const HistoryFindings& found, uint64_t older_bytes);

// Who held what where the most was in use, if that was before the failure; of a trace too.
std::string peak_text(const HistoryFindings& found);
nlohmann::ordered_json peak_json(const HistoryFindings& found);

std::string snapshot_text(const SnapshotReport& report);
std::string snapshot_json(const SnapshotReport& report);

}  // namespace spillway::tools
