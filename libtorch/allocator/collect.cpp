#include "libtorch/allocator/collect.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/util/Exception.h>

#include <algorithm>

#include "libtorch/allocator/allocator.h"
#include "libtorch/allocator/core.h"

namespace spillway::libtorch {
namespace {

// LibTorch's own: it lets go of tensors that were shared and that the other processes are done with.
constexpr const char* kOfSharing = "cuda_ipc_collect";

int may_have_something(int32_t device) {
  if (Allocator::get().keeps_for_others(static_cast<c10::DeviceIndex>(device))) return 1;
  const std::vector<std::string> names = c10::FreeCudaMemoryCallbacksRegistry()->Keys();
  return std::any_of(names.begin(), names.end(), [](const std::string& name) { return name != kOfSharing; });
}

void collect(int32_t device) {
  try {
    for (const std::string& name : c10::FreeCudaMemoryCallbacksRegistry()->Keys())
      c10::FreeCudaMemoryCallbacksRegistry()->Create(name)->Execute();
    Allocator::get().give_back_nested(static_cast<c10::DeviceIndex>(device));
  } catch (const std::exception& error) {
    TORCH_WARN("a callback that frees CUDA memory failed: ", error.what());
  }
}

constexpr spillway_collector kCollector{sizeof kCollector, may_have_something, collect};

}  // namespace

void collect_when_short() {
  core().table->set_collector(&kCollector);
}

}  // namespace spillway::libtorch
