#include "tools/spillway/replay/output.h"

#include "tools/spillway/snapshot/write.h"
#include "tools/spillway/units.h"

namespace spillway::tools {
namespace {

// Of settings that occur twice the last one counts.
std::string alloc_conf_of(const ReplayInput& input, ReplayAllocator allocator) {
  const char* const expandable = allocator == ReplayAllocator::kExpandable ? "True" : "False";
  return input.alloc_conf + (input.alloc_conf.empty() ? "" : ",") + "expandable_segments:" + expandable;
}

}  // namespace

std::string replay_snapshot(const ReplayInput& input, ReplayAllocator allocator, uint64_t capacity,
                            ReplayRecord record) {
  MemoryHistory history = input.origin;
  history.requests_only = false;
  history.incomplete = input.incomplete;
  if (!record.incomplete.empty())
    history.incomplete += (history.incomplete.empty() ? "" : "; ") + record.incomplete;
  history.settings["spillway_replay"] =
      std::string(replay_allocator_name(allocator)) + ", on " + size_text(capacity);
  for (const char* name : kAllocConfNames) history.settings.erase(name);
  if (allocator != ReplayAllocator::kSpillway)
    history.settings[kAllocConfNames[0]] = alloc_conf_of(input, allocator);
  history.devices[input.device] = std::move(record.device);
  return snapshot_of(history);
}

}  // namespace spillway::tools
