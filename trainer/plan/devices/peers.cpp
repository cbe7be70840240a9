#include "trainer/plan/devices/peers.h"

#include <algorithm>
#include <limits>
#include <set>

namespace spillway::trainer {
namespace {

// What a device may use more, or lacks, which is negative.
int64_t room_of(const Estimate& needed, const Machine& machine, uint32_t device) {
  const uint64_t limit = machine.limit_of(device);
  const int64_t most = limit > 0 ? int64_t(limit) : std::numeric_limits<int64_t>::max();
  return most - int64_t(std::max(needed.device_peak_bytes[device], needed.evaluation_peak_bytes[device]));
}

}  // namespace

bool find_peer(Plan* plan, const Shape& shape, const Machine& machine, uint32_t device) {
  if (!machine.has_peer_access || device >= machine.devices) return false;
  std::vector<uint32_t> others;
  for (uint32_t other = 0; other < machine.devices; ++other)
    if (other != device && (!plan->peers.contains(device) || plan->peer_of(device) == other))
      others.push_back(other);
  int64_t most = -1;
  std::optional<uint32_t> best;
  for (const uint32_t other : others) {
    Plan tried = *plan;
    tried.peers[device] = other;
    const int64_t room = room_of(estimate(shape, tried, machine), machine, other);
    if (room > most) most = room, best = other;
  }
  if (!best) return false;
  plan->peers[device] = *best;
  return true;
}

bool lacks_peers(const Plan& plan) {
  Plan asked = plan;
  asked.peers = {{0, 1}};
  return plan.peers.empty() && asked.uses_peers();
}

void choose_peers(Plan* plan, const Shape& shape, const Machine& machine) {
  if (machine.devices < 2 || !lacks_peers(*plan)) return;
  const Estimate needed = estimate(shape, *plan, machine);
  uint32_t home = 0;
  for (uint32_t device = 1; device < machine.devices; ++device)
    if (room_of(needed, machine, device) > room_of(needed, machine, home)) home = device;
  std::set<uint32_t> used{0};
  for (const auto& [layer, device] : plan->placement) used.insert(device);
  used.erase(home);
  for (const uint32_t device : used) plan->peers[device] = home;
}

}  // namespace spillway::trainer
