// Which device each layer lies on: the maps that a run can ask for by name, and the one that a device short
// of memory moves to.
//
// The embedding and the head are always on device 0. Layers lie in order: each device has a run of each
// stack's layers, an encoder's and a decoder's apart. So a forward crosses from one device to the next no
// more often than it must.
//
// Thread-safety: pure functions. Errors: none; false where nothing is better than what there is.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "trainer/plan/estimate.h"

namespace spillway::trainer {

// The placement of a plan: layer → device; a layer that is not named is on device 0.
using DeviceMap = std::map<uint32_t, uint32_t>;

enum class DeviceSpread : uint8_t {
  kGiven,         // layer by layer, in the plan
  kEven,          // as many layers on each device as on the others
  kBalanced,      // the largest share of its memory that a device needs is as small as it can be
  kBalancedTime,  // the slowest device is as fast as it can be
};
// "even", "balanced", "balanced_time".
std::optional<DeviceSpread> spread_of(std::string_view name);

// As transformers' `parallelize()` has it: of n layers of a stack each device gets ⌈n / devices⌉, one after
// the other, until there are none. Of 6 layers on 4 devices the last one gets none.
DeviceMap device_map_even(const Architecture& model, uint32_t devices);

// Of the plan's other choices. Begins with the even map and moves the ends of the runs as long as it helps.
DeviceMap device_map_balanced(const Shape& shape, const Plan& plan, const Machine& machine,
                              DeviceSpread by = DeviceSpread::kBalanced);

// The same by other needs, of each device under a map.
using DeviceNeeds = std::function<std::vector<double>(const DeviceMap&)>;
DeviceMap device_map_balanced(const Architecture& model, uint32_t devices, const DeviceNeeds& needs);

// REQUIRES: not kGiven.
DeviceMap device_map(DeviceSpread spread, const Shape& shape, const Plan& plan, const Machine& machine);

// Layers of device `from` go to another one that has room for them, so many that both need about the same
// share of what they may use. False where no device has.
bool shift_layers(Plan* plan, const Shape& shape, const Machine& machine, uint32_t from);

}  // namespace spillway::trainer
