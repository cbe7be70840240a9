// The findings as text for people and as JSON for programs.
//
// Thread-safety: pure functions.
#pragma once
#include <string>

#include "tools/spillway/history/findings.h"
#include "tools/spillway/replay/counterfactuals.h"

namespace spillway::tools {

struct SnapshotReport {
  const std::string& path;
  const MemoryHistory& snapshot;
  const HistoryFindings& findings;
  const Counterfactuals* fitted = nullptr;  // null: that is not shown
};

std::string snapshot_text(const SnapshotReport& report);
std::string snapshot_json(const SnapshotReport& report);
// "leak", "fragmentation", ...
const char* snapshot_cause_name(const HistoryFindings& findings);

}  // namespace spillway::tools
