#include "tools/spillway/report/trace/place_blocks.h"

#include <unordered_map>

#include "allocator/accounting/sites_by_size.h"

namespace spillway::tools {

void place_the_others(const std::vector<SampledAllocation>& sampled, const std::vector<bool>& lives,
                      DeviceHistory* device) {
  std::vector<HistoryEvent>& events = device->events;
  std::vector<bool> is_sampled(events.size());
  device->placed_by_size.assign(events.size(), false);
  SitesBySize of_kept, of_passing;
  const auto alike = [&](size_t event) -> SitesBySize& { return lives[event] ? of_kept : of_passing; };
  const auto place_of = [&](size_t event) {
    const uint64_t bytes = events[event].size;
    const auto place = alike(event).deal(bytes);
    return static_cast<StackId>(place ? *place
                                      : (lives[event] ? of_passing : of_kept).deal(bytes).value_or(0));
  };
  for (const auto& [event, blocks] : sampled) {
    alike(event).know(events[event].size, events[event].stack, blocks);
    is_sampled[event] = true;
  }
  std::unordered_map<uint64_t, StackId> placed;  // by address
  for (size_t i = 0; i < events.size(); ++i) {
    HistoryEvent& event = events[i];
    if (event.action == Action::kAllocate) {
      if (is_sampled[i]) continue;
      event.stack = place_of(i);
      device->placed_by_size[i] = true;
      if (event.stack != 0 && !lives[i]) placed[event.address] = event.stack;
    } else if (event.action == Action::kFreeRequested || event.action == Action::kFreeCompleted) {
      const auto block = placed.find(event.address);
      if (block == placed.end()) continue;
      event.stack = block->second;
      if (event.action == Action::kFreeCompleted) placed.erase(block);
    }
  }
}

}  // namespace spillway::tools
