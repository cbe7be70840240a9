#include "libtorch/allocator/collect.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/util/Exception.h>

#include <string>
#include <utility>

#include "libtorch/allocator/core.h"

namespace spillway::libtorch {
namespace {

// A step that fails does not keep the others from being tried.
template <typename Step>
void attempt(const Step& step) {
  try {
    step();
  } catch (const std::exception& error) {
    TORCH_WARN("memory that is only kept for others could not be freed: ", error.what());
  } catch (...) {
    TORCH_WARN("memory that is only kept for others could not be freed");
  }
}

// A callback that asks for a block itself would be called for that again, and again.
thread_local bool collects = false;

// LibTorch's own callback lets go of tensors that were shared and that the other processes are done with.
void collect(int32_t) {
  if (std::exchange(collects, true)) return;
  attempt([] {
    for (const std::string& name : c10::FreeCudaMemoryCallbacksRegistry()->Keys())
      attempt([&] { c10::FreeCudaMemoryCallbacksRegistry()->Create(name)->Execute(); });
  });
  collects = false;
}

}  // namespace

void collect_when_short() {
  core().table->set_collector(collect);
}

}  // namespace spillway::libtorch
