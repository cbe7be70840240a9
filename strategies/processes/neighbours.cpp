#include "strategies/processes/neighbours.h"

#include <unistd.h>

#include <algorithm>
#include <set>
#include <thread>

#include "base/mutex.h"
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

struct Look {
  std::vector<Neighbour> found;
  std::vector<uint64_t> silent;  // members that have not shown yet what they hold
};

// Members that were waited for in vain, since they use no device.
class KnownSilent {
 public:
  static KnownSilent& get() {
    static auto* const known = new KnownSilent;  // never destroyed: threads outlive static destruction
    return *known;
  }
  bool are_all(const std::vector<uint64_t>& processes) {
    const Locked lock(mutex_);
    for (const uint64_t process : processes)
      if (!processes_.contains(process)) return false;
    return true;
  }
  void add(const std::vector<uint64_t>& processes) {
    const Locked lock(mutex_);
    processes_.insert(processes.begin(), processes.end());
  }

 private:
  Mutex<LockOrder::kLeaf> mutex_;
  std::set<uint64_t> processes_ SPILLWAY_GUARDED_BY(mutex_);
};

Look look_at(const std::string& ledger, const DeviceUuid& uuid) {
  Look look;
  std::vector<LedgerMember> members;
  std::string why_not;
  if (read_ledger(ledger, &members, &why_not) != LedgerRead::kRead) return look;
  for (const LedgerMember& member : members) {
    if (member.process == static_cast<uint64_t>(::getpid())) continue;
    if (!member.has_entry || member.entry.device_count == 0) look.silent.push_back(member.process);
    const auto count = std::min<uint64_t>(member.entry.device_count, LedgerEntry::kMostDevices);
    for (uint64_t i = 0; i < count; ++i)
      if (member.entry.devices[i].uuid == uuid)
        look.found.push_back(neighbour_of(member, member.entry.devices[i]));
  }
  return look;
}

}  // namespace

std::vector<Neighbour> neighbours_on(const driver::Table& table, int device, std::chrono::milliseconds most) {
  constexpr auto kBetweenLooks = std::chrono::milliseconds(10);
  const std::string name = ledger_name();
  const std::optional<DeviceUuid> uuid = uuid_of(table, device);
  if (name.empty() || !uuid) return {};
  const auto end = std::chrono::steady_clock::now() + most;
  Look look = look_at(name, *uuid);
  KnownSilent& known = KnownSilent::get();
  while (look.found.empty() && !known.are_all(look.silent) && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(kBetweenLooks);
    look = look_at(name, *uuid);
  }
  if (most.count() > 0) known.add(look.silent);
  std::ranges::stable_sort(look.found, std::ranges::greater(), &Neighbour::held_bytes);
  if (look.found.size() > kMost) look.found.resize(kMost);
  return std::move(look.found);
}

}  // namespace spillway
