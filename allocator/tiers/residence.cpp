#include "allocator/tiers/residence.h"

#include "allocator/tiers/choice/choose.h"

namespace spillway {

uint64_t Residence::spilled_bytes(Tier tier) {
  const Locked guard(heap_.lock);
  return heap_.tiers.spilled.bytes(tier);
}

uint64_t Residence::returnable_bytes() {
  if (heap_.forked()) return 0;
  const Locked guard(heap_.lock);
  return spillway::returnable_bytes(heap_);
}

uint64_t Residence::unspill() {
  if (heap_.forked()) return 0;
  const Device::Scope scope(*heap_.device);
  return unspiller_.unspill();
}

Slowdown Residence::slowdown() {
  if (heap_.forked()) return {};
  const Locked guard(heap_.lock);
  const StepTimes& steps = heap_.tiers.steps;
  if (steps.steps() == 0 || heap_.tiers.spilled.empty()) return {};
  return {steps.predicted(), steps.measured(), steps.now(), steps.steps(), steps.orders()};
}

uint64_t Residence::exchangeable_bytes(const SpillPlace& where) {
  return heap_.forked() ? 0 : exchanger_.exchangeable_bytes(where);
}

uint64_t Residence::exchange(const SpillPlace& where) {
  if (heap_.forked()) return 0;
  const Device::Scope scope(*heap_.device);
  return exchanger_.exchange(where);
}

void Residence::hurry_returns(bool hurried) {
  if (heap_.forked()) return;
  const Locked guard(heap_.lock);
  heap_.tiers.needs.hurry(hurried ? heap_.tiers.steps.orders() : 0);
}

bool Residence::make_host_memory_ahead(uint64_t most_bytes) {
  if (heap_.forked()) return false;
  const Device::Scope scope(*heap_.device);
  return memory_.host().make_ahead(most_bytes);
}

void Residence::release_host_memory() {
  if (heap_.forked()) return;
  const Device::Scope scope(*heap_.device);
  memory_.host().release(0);
}

Peers Residence::peers() {
  if (heap_.forked()) return {};
  const Locked guard(heap_.lock);
  return heap_.tiers.peers;
}

uint64_t Residence::guest_room() {
  const Locked guard(heap_.lock);
  return heap_.pages.quota().room();
}

uint64_t Residence::evict(DeviceId peer, uint64_t bytes, uint64_t most_host_bytes) {
  if (heap_.forked()) return 0;
  const Device::Scope scope(*heap_.device);
  const uint64_t moved = spiller_.guests_to_host(peer, bytes, most_host_bytes);
  return moved >= bytes ? moved : moved + unspiller_.guests_home(peer, bytes - moved);
}

}  // namespace spillway
