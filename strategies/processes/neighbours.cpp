#include "strategies/processes/neighbours.h"

#include <unistd.h>

#include <algorithm>

#include "processes/ledger.h"
#include "strategies/processes/primary_context_guard.h"

namespace spillway {
namespace {

constexpr size_t kMost = 64;

// `driver calls` are PyTorch's own allocator's too.
Neighbour neighbour_of(const LedgerMember& member, const LedgerDevice& device) {
  const auto sum = [](uint64_t a, uint64_t b) { return a + std::min(b, UINT64_MAX - a); };
  return {.process = member.process,
          .held_bytes = sum(device.held_bytes, std::max(device.native_bytes, device.framework_held_bytes)),
          .cached_bytes = sum(device.cached_bytes, device.framework_cached_bytes),
          .program = member.entry.program};
}

}  // namespace

std::vector<Neighbour> neighbours_on(const driver::Table& table, int device) {
  std::vector<Neighbour> found;
  std::vector<LedgerMember> members;
  std::string why_not;
  const std::string name = ledger_name();
  const std::optional<DeviceUuid> uuid = uuid_of(table, device);
  if (name.empty() || !uuid || read_ledger(name, &members, &why_not) != LedgerRead::kRead) return found;
  for (const LedgerMember& member : members) {
    if (!member.has_entry || member.process == static_cast<uint64_t>(::getpid())) continue;
    const auto count = std::min<uint64_t>(member.entry.device_count, LedgerEntry::kMostDevices);
    for (uint64_t i = 0; i < count; ++i)
      if (member.entry.devices[i].uuid == *uuid)
        found.push_back(neighbour_of(member, member.entry.devices[i]));
  }
  std::ranges::stable_sort(found, std::ranges::greater(), &Neighbour::held_bytes);
  if (found.size() > kMost) found.resize(kMost);
  return found;
}

}  // namespace spillway
