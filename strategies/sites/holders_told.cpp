#include "strategies/sites/holders_told.h"

#include <algorithm>
#include <utility>

#include "allocator/accounting/record.h"

namespace spillway {
namespace {

constexpr size_t kMostPlaces = 63;
constexpr uint64_t kAnyFree = 0;  // the driver need not be asked

uint64_t nanoseconds_of(HoldersTold::Clock::time_point time) {
  const auto since = std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch());
  return static_cast<uint64_t>(since.count());
}

uint64_t in_use(Allocator& allocator, DeviceId device) {
  Memory memory;
  return allocator.memory(device, &memory, kAnyFree) == Status::kOk ? memory.live + memory.spilled : 0;
}

uint64_t in_use(Allocator& allocator) {
  uint64_t sum = 0;
  for (int device = 0; device < SPILLWAY_MOST_DEVICES; ++device)
    if (allocator.uses(DeviceId{device})) sum += in_use(allocator, DeviceId{device});
  return sum;
}

// The sum comes last: whoever reads it has all places of that time before it.
void tell(Allocator& allocator, DeviceId device, HoldersTold::Clock::time_point now) {
  const std::vector<SiteHolding> holders = largest_holders(allocator, device, kMostPlaces);
  if (holders.empty()) return;
  trace::Record record;
  record.kind = trace::Kind::kHeld;
  record.address = nanoseconds_of(now);
  for (const SiteHolding& holder : holders) {
    record.bytes = holder.bytes;
    record.requested = holder.blocks;
    record.detail = holder.site;
    write_record(allocator, device, record);
  }
  record.flags = 1;
  record.bytes = in_use(allocator, device);
  record.requested = record.detail = 0;
  write_record(allocator, device, record);
}

}  // namespace

std::vector<SiteHolding> largest_holders(Allocator& allocator, DeviceId device, size_t most) {
  std::vector<SiteHolding> holders = allocator.holders(device);
  if (holders.size() <= most) return holders;
  SiteHolding& rest = holders[most - 1];
  rest.site = 0;
  for (size_t i = most; i < holders.size(); ++i) {
    rest.bytes += holders[i].bytes;
    rest.blocks += holders[i].blocks;
  }
  holders.resize(most);
  return holders;
}

void HoldersTold::tell_when_due(Allocator& allocator, Clock::time_point now) {
  if (due_ == Clock::time_point{}) due_ = now + pause_;
  if (now < due_ || allocator.trace() == nullptr) return;
  due_ = now + pause_;
  pause_ = std::min<Clock::duration>(2 * pause_, kLongestPause);
  const auto state = std::pair(allocator.requests(), in_use(allocator));
  if (std::exchange(told_, state) == state) return;
  for (int device = 0; device < SPILLWAY_MOST_DEVICES; ++device)
    if (allocator.uses(DeviceId{device})) tell(allocator, DeviceId{device}, now);
}

}  // namespace spillway
