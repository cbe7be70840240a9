// The findings as text for people and as JSON for programs.
//
// Thread-safety: pure functions.
#pragma once
#include <string>

#include "tools/spillway/snapshot/findings.h"

namespace spillway::tools {

struct SnapshotReport {
  const std::string& path;
  const Snapshot& snapshot;
  const SnapshotFindings& findings;
};

std::string snapshot_text(const SnapshotReport& report);
std::string snapshot_json(const SnapshotReport& report);
// "leak", "fragmentation", ...
const char* snapshot_cause_name(const SnapshotFindings& findings);

}  // namespace spillway::tools
