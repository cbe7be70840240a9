#include "tools/spillway/top/overview.h"

#include <algorithm>
#include <cstdio>
#include <map>

namespace spillway::tools {
namespace {

uint64_t plus(uint64_t a, uint64_t b) {
  return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

uint64_t minus(uint64_t a, uint64_t b) {
  return a - std::min(a, b);
}

// A terminal obeys control characters, and beyond ASCII a text may be cut in the middle of a letter.
template <size_t size>
void make_printable(char (&text)[size]) {
  for (char& c : text) {
    if (c == '\0') return;
    if (c < ' ' || c > '~') c = '?';
  }
}

void make_printable(LedgerEntry* entry) {
  make_printable(entry->program);
  make_printable(entry->host);
  make_printable(entry->container);
  make_printable(entry->phase);
  make_printable(entry->mode);
  make_printable(entry->incident.tried);
  for (LedgerStrategy& strategy : entry->strategies) make_printable(strategy.name);
  for (LedgerDevice& device : entry->devices) make_printable(device.name);
}

HeldBy held_by(const LedgerEntry& entry, const LedgerDevice& device) {
  const bool spillway = device.held_bytes != 0, framework = device.framework_held_bytes != 0;
  if (spillway) return framework ? HeldBy::kBoth : HeldBy::kSpillway;
  if (framework) return HeldBy::kFramework;
  if (device.native_bytes != 0) return HeldBy::kDriverCalls;
  return entry.framework_is_known != 0 ? HeldBy::kNothing : HeldBy::kUnknown;
}

struct Looked {
  DeviceOverview device;
  uint64_t age_ns = UINT64_MAX;  // of what is known about the whole card
};

void add(const LedgerMember& member, size_t index, std::map<DeviceUuid, Looked>* devices) {
  for (size_t i = 0; i < member.entry.device_count; ++i) {
    const LedgerDevice& shown = member.entry.devices[i];
    Looked& looked = (*devices)[shown.uuid];
    DeviceOverview& device = looked.device;
    device.uuid = shown.uuid;
    if (shown.device_bytes != 0 && member.age_ns < looked.age_ns) {
      looked.age_ns = member.age_ns;
      device.device_bytes = shown.device_bytes;
      device.used_bytes = minus(shown.device_bytes, shown.free_bytes);
      device.name = shown.name;
      device.number = shown.number;
    }
    Share share{.process = index,
                .held_bytes = plus(shown.held_bytes, shown.framework_held_bytes),
                .cached_bytes = plus(shown.cached_bytes, shown.framework_cached_bytes),
                .spare_bytes = shown.spare_bytes,
                .spilled_bytes = shown.spilled_bytes,
                .spilled_peer_bytes = shown.spilled_peer_bytes,
                .spilled_nvme_bytes = shown.spilled_nvme_bytes,
                .limit_bytes = shown.limit_bytes,
                .by = held_by(member.entry, shown)};
    if (share.by == HeldBy::kDriverCalls) share.held_bytes = shown.native_bytes;
    device.held_bytes = plus(device.held_bytes, share.held_bytes);
    device.cached_bytes = plus(device.cached_bytes, share.cached_bytes);
    device.shares.push_back(share);
  }
}

}  // namespace

Overview overview_of(std::vector<LedgerMember> members) {
  Overview overview;
  overview.processes = std::move(members);
  std::ranges::sort(overview.processes, {}, &LedgerMember::process);
  std::map<DeviceUuid, Looked> devices;
  for (size_t i = 0; i < overview.processes.size(); ++i) {
    LedgerMember& member = overview.processes[i];
    make_printable(&member.entry);
    add(member, i, &devices);
    overview.failures = plus(overview.failures, member.entry.failures);
    overview.rescued = plus(overview.rescued, member.entry.rescued);
    overview.rescued_bytes = plus(overview.rescued_bytes, member.entry.rescued_bytes);
  }
  for (auto& [uuid, looked] : devices) {
    looked.device.other_bytes = minus(looked.device.used_bytes, looked.device.held_bytes);
    overview.devices.push_back(std::move(looked.device));
  }
  std::ranges::stable_sort(overview.devices, {},
                           [](const DeviceOverview& device) { return device.number - 1; });
  return overview;
}

uint64_t incident_age_ns(const LedgerMember& member) {
  return plus(minus(member.entry.written_ns, member.entry.incident.ended_ns), member.age_ns);
}

std::string uuid_text(const DeviceUuid& uuid) {
  std::string text = "GPU-";
  for (size_t i = 0; i < uuid.size(); ++i) {
    char byte[4];
    std::snprintf(byte, sizeof byte, "%02x", uuid[i]);
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += byte;
  }
  return text;
}

}  // namespace spillway::tools
