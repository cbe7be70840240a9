#include "libtorch/allocator/install.h"

#include <c10/cuda/CUDAStream.h>

#include <algorithm>

#include "base/mutex.h"
#include "libtorch/allocator/allocator.h"
#include "libtorch/allocator/core.h"
#include "spillway/libtorch/plugin.h"

namespace spillway::libtorch {
namespace {

// c10 never destroys streams of its own. One that comes from outside has its address as its number, which is
// even; c10's own have odd numbers, and the default one 0.
int lasts(uint64_t stream) {
  const c10::cuda::CUDAStream current = c10::cuda::getCurrentCUDAStream();
  const bool own = current.id() == 0 || current.id() % 2 != 0;
  return own && reinterpret_cast<uint64_t>(current.stream()) == stream ? 1 : 0;
}

}  // namespace

std::string install_allocator() {
  native::CUDAAllocator* before = native::allocator.load();
  if (before == nullptr)
    return "LibTorch's CUDA part is not loaded: use a CUDA build of PyTorch, or import torch first";
  if (before->name() != "native") {
    return "another allocator ('" + before->name() + "') already stands in for PyTorch's: remove it first";
  }
  if (before->initialized()) {
    return "CUDA is already initialised: call spillway.install() before the first use of a CUDA device";
  }
  // Never destroyed: tensors outlive static destruction.
  auto* allocator = new Allocator(before);
  core().set_lasting_streams(&lasts);
  c10::SetAllocator(c10::DeviceType::CUDA, allocator);
  native::allocator.store(allocator);
  return "";
}

namespace {

void add_block(const native::BlockInfo& block, bool private_pool, SpillwayFrameworkState* state) {
  if (block.allocated) {
    state->requested += std::min(block.requested_size, block.size);
    state->rounding += block.size - std::min(block.requested_size, block.size);
  } else if (block.active) {
    state->pending += block.size;
  } else if (private_pool) {
    state->pools_idle += block.size;
  } else {
    state->idle += block.size;
  }
}

// Before 2.11 the traces are copied with it, which nobody reads here.
template <class Native>
native::SnapshotInfo snapshot_of(Native& allocator, c10::cuda::MempoolId_t pool) {
  if constexpr (requires { allocator.snapshot(pool, false); }) return allocator.snapshot(pool, false);
  return allocator.snapshot(pool);
}

}  // namespace
}  // namespace spillway::libtorch

extern "C" SPILLWAY_API int spillway_torch_empty_native_cache(void) {
  namespace native = spillway::libtorch::native;
  native::CUDAAllocator* now = native::allocator.load();
  if (now == nullptr || now->name() == "spillway" || !now->initialized()) return 1;
  try {
    now->emptyCache({0, 0});
    return 0;
  } catch (const std::exception&) {  // an error of CUDA's, which the program will meet by itself
    return 1;
  }
}

extern "C" SPILLWAY_API int spillway_torch_native_memory(int device, uint64_t* held, uint64_t* in_use,
                                                         uint64_t* releasable) {
  namespace native = spillway::libtorch::native;
  native::CUDAAllocator* now = native::allocator.load();
  if (now == nullptr || now->name() != "native" || !now->initialized()) return 1;
  constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  try {
    const auto stats = now->getDeviceStats(static_cast<c10::DeviceIndex>(device));
    *held = static_cast<uint64_t>(stats.reserved_bytes[kAll].current);
    *in_use = static_cast<uint64_t>(stats.active_bytes[kAll].current);
    const uint64_t stuck = *in_use + static_cast<uint64_t>(stats.inactive_split_bytes[kAll].current);
    *releasable = *held - std::min(*held, stuck);
    return 0;
  } catch (const std::exception&) {  // no such device
    return 1;
  }
}

// A snapshot takes the locks of all devices one after the other. Two threads whose requests fail on two
// devices would wait for each other, so only one takes one.
extern "C" SPILLWAY_API int spillway_torch_native_state(int device, SpillwayFrameworkState* state) {
  namespace native = spillway::libtorch::native;
  static spillway::Mutex<spillway::LockOrder::kNativeState> mutex;
  if (!mutex.try_lock()) return 1;
  const spillway::Locked lock(mutex, spillway::kAdopt);
  native::CUDAAllocator* now = native::allocator.load();
  if (now == nullptr || now->name() != "native" || !now->initialized()) return 1;
  try {
    *state = {};
    state->fraction = now->getMemoryFraction(static_cast<c10::DeviceIndex>(device));
    const c10::cuda::MempoolId_t every_pool{0, 0};
    for (const auto& segment : spillway::libtorch::snapshot_of(*now, every_pool).segments) {
      if (segment.device != device) continue;
      for (const auto& block : segment.blocks)
        spillway::libtorch::add_block(block, segment.owner_private_pool_id != every_pool, state);
    }
    return 0;
  } catch (const std::exception&) {  // no such device, or no memory
    return 1;
  }
}

extern "C" SPILLWAY_API int spillway_torch_native_retries(int device, uint64_t* retries,
                                                          uint64_t* got_bytes) {
  namespace native = spillway::libtorch::native;
  native::CUDAAllocator* now = native::allocator.load();
  if (now == nullptr || now->name() != "native" || !now->initialized()) return 1;
  constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  try {
    const auto stats = now->getDeviceStats(static_cast<c10::DeviceIndex>(device));
    *retries = static_cast<uint64_t>(stats.num_alloc_retries);
    *got_bytes = static_cast<uint64_t>(stats.reserved_bytes[kAll].allocated);
    return 0;
  } catch (const std::exception&) {  // no such device
    return 1;
  }
}
