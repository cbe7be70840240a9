#include "simulator/libraries/pinned.h"

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "base/libtorch_version.h"

namespace spillway::stand_in {
namespace {

// From the metadata of the wheels on PyPI (`Requires-Dist`), oldest first.
constexpr Pinned kPinned[] = {
    {8, 91002, 22703},  {9, 91002, 22705},  {10, 91002, 22705}, {11, 91900, 22809},
    {12, 92000, 22907}, {13, 92000, 22907}, {14, 92400, 23007}, {15, 92600, 23007},
};

}  // namespace

const Pinned& pinned_versions() {
  const uint64_t minor = libtorch_version().minor;
  const auto* found = std::find_if(std::begin(kPinned), std::end(kPinned),
                                   [&](const Pinned& it) { return it.torch_minor == minor; });
  return found == std::end(kPinned) ? *std::prev(std::end(kPinned)) : *found;
}

}  // namespace spillway::stand_in
