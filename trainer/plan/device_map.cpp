#include "trainer/plan/device_map.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

namespace spillway::trainer {
namespace {

// Layers [first, first + count) of a stack; device d has those from ends[d - 1] up to ends[d].
struct Runs {
  uint32_t first = 0, count = 0;
  std::vector<uint32_t> ends{};
};

Runs even_runs(uint32_t first, uint32_t count, uint32_t devices) {
  Runs runs{.first = first, .count = count};
  const uint32_t each = (count + devices - 1) / devices;
  for (uint32_t device = 0; device < devices; ++device)
    runs.ends.push_back(std::min(count, (device + 1) * each));
  return runs;
}

std::vector<Runs> even_stacks(const Architecture& model, uint32_t devices) {
  std::vector<Runs> stacks{even_runs(0, model.layers, std::max(1u, devices))};
  if (model.decoder_layers > 0)
    stacks.push_back(even_runs(model.layers, model.decoder_layers, std::max(1u, devices)));
  return stacks;
}

DeviceMap map_of(const std::vector<Runs>& stacks) {
  DeviceMap map;
  for (const Runs& runs : stacks)
    for (uint32_t device = 0, layer = 0; device < runs.ends.size(); ++device)
      for (; layer < runs.ends[device]; ++layer)
        if (device > 0) map[runs.first + layer] = device;
  return map;
}

// What each device needs: seconds, or bytes as a share of what it may use, where that is known.
std::vector<double> needs_of(const Shape& shape, const Plan& plan, const Machine& machine, DeviceSpread by) {
  const Estimate needed = estimate(shape, plan, machine);
  if (by == DeviceSpread::kBalancedTime) return needed.device_seconds;
  std::vector<double> needs;
  for (uint32_t device = 0; device < needed.device_peak_bytes.size(); ++device) {
    const uint64_t limit = machine.limit_of(device);
    const uint64_t bytes = std::max(needed.device_peak_bytes[device], needed.evaluation_peak_bytes[device]);
    needs.push_back(double(bytes) / double(limit > 0 ? limit : 1));
  }
  return needs;
}

// Moves the ends of the runs by `by` layers, one end at a time, while that makes the largest need smaller,
// or, of equal largest ones, the next.
class Balance {
 public:
  Balance(std::vector<Runs> stacks, DeviceNeeds needs)
      : stacks_(std::move(stacks)), needs_of_(std::move(needs)), needs_(sorted_needs(stacks_)) {}

  void settle(uint32_t by) {
    while (step(by)) {
    }
  }
  DeviceMap map() const { return map_of(stacks_); }

 private:
  std::vector<double> sorted_needs(const std::vector<Runs>& stacks) const {
    std::vector<double> needs = needs_of_(map_of(stacks));
    std::ranges::sort(needs, std::greater<>());
    return needs;
  }

  bool step(uint32_t by) {
    std::optional<std::vector<Runs>> best;
    for (size_t stack = 0; stack < stacks_.size(); ++stack)
      for (size_t end = 0; end + 1 < stacks_[stack].ends.size(); ++end)
        for (const int64_t change : {-int64_t{by}, int64_t{by}}) {
          std::vector<Runs> tried = stacks_;
          if (!move_end(&tried[stack], end, change)) continue;
          std::vector<double> needs = sorted_needs(tried);
          if (needs >= needs_) continue;
          needs_ = std::move(needs);
          best = std::move(tried);
        }
    if (best) stacks_ = std::move(*best);
    return best.has_value();
  }

  static bool move_end(Runs* runs, size_t end, int64_t change) {
    const int64_t to = int64_t{runs->ends[end]} + change, least = end > 0 ? runs->ends[end - 1] : 0;
    if (to < least || to > int64_t{runs->ends[end + 1]}) return false;
    runs->ends[end] = uint32_t(to);
    return true;
  }

  std::vector<Runs> stacks_;
  const DeviceNeeds needs_of_;
  std::vector<double> needs_;  // the largest first
};

// The last `count` of the layers on a device go to a higher one, the first to a lower one.
Plan shifted(const Plan& plan, const std::vector<uint32_t>& here, uint32_t count, uint32_t from,
             uint32_t to) {
  Plan moved = plan;
  const size_t first = to > from ? here.size() - count : 0;
  for (size_t i = first; i < first + count; ++i) moved.placement[here[i]] = to;
  return normalised(moved);
}

// The number of layers with which the larger of two needs is smallest: one falls with it, the other grows.
template <typename Needs>
uint32_t evened_out(uint32_t most, const Needs& needs) {
  uint32_t below = 0, found = most;
  while (below < found) {
    const uint32_t middle = below + (found - below) / 2;
    const auto [giving, taking] = needs(middle);
    if (taking >= giving)
      found = middle;
    else
      below = middle + 1;
  }
  const auto larger = [&](uint32_t count) {
    const auto [giving, taking] = needs(count);
    return std::max(giving, taking);
  };
  return found > 0 && larger(found - 1) < larger(found) ? found - 1 : found;
}

}  // namespace

std::optional<DeviceSpread> spread_of(std::string_view name) {
  if (name == "even") return DeviceSpread::kEven;
  if (name == "balanced") return DeviceSpread::kBalanced;
  if (name == "balanced_time") return DeviceSpread::kBalancedTime;
  return std::nullopt;
}

DeviceMap device_map_even(const Architecture& model, uint32_t devices) {
  return map_of(even_stacks(model, devices));
}

DeviceMap device_map_balanced(const Shape& shape, const Plan& plan, const Machine& machine, DeviceSpread by) {
  return device_map_balanced(shape.model, machine.devices, [&](const DeviceMap& map) {
    Plan placed = plan;
    placed.placement = map;
    return needs_of(shape, placed, machine, by);
  });
}

DeviceMap device_map_balanced(const Architecture& model, uint32_t devices, const DeviceNeeds& needs) {
  Balance balance(even_stacks(model, devices), needs);
  for (const uint32_t layers : {8u, 4u, 2u, 1u}) balance.settle(layers);
  return balance.map();
}

DeviceMap device_map(DeviceSpread spread, const Shape& shape, const Plan& plan, const Machine& machine) {
  if (spread == DeviceSpread::kEven) return device_map_even(shape.model, machine.devices);
  return device_map_balanced(shape, plan, machine, spread);
}

bool shift_layers(Plan* plan, const Shape& shape, const Machine& machine, uint32_t from) {
  if (from >= machine.devices) return false;
  std::vector<uint32_t> here;
  for (uint32_t layer = 0; layer < shape.layers(); ++layer)
    if (plan->device_of(layer) == from) here.push_back(layer);
  if (here.empty()) return false;
  const auto needs = [&](const Plan& moved) {
    return needs_of(shape, moved, machine, DeviceSpread::kBalanced);
  };
  const std::vector<double> now = needs(*plan);
  std::vector<uint32_t> others;  // the one that needs least first
  for (uint32_t device = 0; device < machine.devices; ++device)
    if (device != from) others.push_back(device);
  std::ranges::stable_sort(others, {}, [&](uint32_t device) { return now[device]; });
  for (const uint32_t to : others) {
    const uint32_t count = evened_out(uint32_t(here.size()), [&](uint32_t layers) {
      const std::vector<double> then = needs(shifted(*plan, here, layers, from, to));
      return std::pair(then[from], then[to]);
    });
    const Plan moved = shifted(*plan, here, count, from, to);
    const std::vector<double> then = needs(moved);
    const bool has_room = machine.limit_of(to) == 0 || then[to] <= 1;
    if (count == 0 || !has_room || std::max(then[from], then[to]) >= now[from]) continue;
    *plan = moved;
    return true;
  }
  return false;
}

}  // namespace spillway::trainer
