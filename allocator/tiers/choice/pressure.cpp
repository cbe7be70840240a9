#include "allocator/tiers/choice/pressure.h"

namespace spillway {
namespace {

constexpr uint64_t kPressurePercent = 85;
// With less than half held only a request for more than half can be short: what is queued until then has
// seldom to be waited for.
constexpr uint64_t kMarksPercent = 50;

bool holds(const HeapState& heap, uint64_t percent) SPILLWAY_REQUIRES(heap.lock) {
  return heap.pages.held() >= heap.most_bytes() / 100 * percent;
}

bool marks_are_due(HeapState& heap, bool failed) {
  if (heap.shared.marks_wanted.load(std::memory_order_relaxed) == nullptr) return false;
  const Locked guard(heap.lock);
  return failed || holds(heap, kMarksPercent);
}

bool begin_to_learn(HeapState& heap, bool failed) {
  const Locked guard(heap.lock);
  AccessFrequency& access = heap.tiers.access;
  if (access.is_learning() || heap.order == 0) return false;
  if (!failed && !holds(heap, kPressurePercent)) return false;
  access.learn(heap.order);
  return true;
}

}  // namespace

void learn_under_pressure(HeapState& heap, bool failed) {
  if (marks_are_due(heap, failed)) heap.shared.begin_marks();
  if (!begin_to_learn(heap, failed)) return;
  find_peers(heap);
  heap.shared.tell_pressure();
}

void read_clock(HeapState& heap) {
  const uint64_t now = heap.device->copies().time_us();
  const Locked guard(heap.lock);
  heap.tiers.bandwidth.read_clock(now, heap.order, heap.tiers.spilled.empty());
}

void find_peers(HeapState& heap) {
  Peers found;
  {
    const SharedLocked mapping(heap.mappings_mutex);
    found = heap.device->find_peers();
  }
  const Locked guard(heap.lock);
  heap.tiers.peers = std::move(found);
}

}  // namespace spillway
