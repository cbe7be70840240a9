#include "simulator/libraries/pinned.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdint>
#include <iterator>

namespace spillway::stand_in {
namespace {

// From the metadata of the wheels on PyPI (`Requires-Dist`), oldest first.
constexpr Pinned kPinned[] = {
    {10, 91002, 22705}, {11, 91900, 22809}, {12, 92000, 22907},
    {13, 92000, 22907}, {14, 92400, 23007}, {15, 92600, 23007},
};

// 0: unknown. Every PyTorch since 2.9 has the function.
unsigned minor_of_this_torch() {
  void* torch = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  if (torch == nullptr) return 0;
  const auto version = reinterpret_cast<uint64_t (*)()>(dlsym(torch, "aoti_torch_abi_version"));
  dlclose(torch);
  return version == nullptr ? 0 : static_cast<unsigned>((version() >> 48) & 0xff);
}

}  // namespace

const Pinned& pinned_versions() {
  const unsigned minor = minor_of_this_torch();
  const auto* found = std::find_if(std::begin(kPinned), std::end(kPinned),
                                   [&](const Pinned& it) { return it.torch_minor == minor; });
  return found == std::end(kPinned) ? *std::prev(std::end(kPinned)) : *found;
}

}  // namespace spillway::stand_in
