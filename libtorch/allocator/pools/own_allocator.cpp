#include "libtorch/allocator/pools/own_allocator.h"

#include <c10/cuda/CUDAGuard.h>

#include <bit>
#include <utility>

#include "libtorch/allocator_config.h"

namespace spillway::libtorch {
namespace {

struct OwnAllocator {
  c10::DeviceIndex device;
  PoolAllocator allocator;
};

thread_local std::exception_ptr own_failure;
thread_local GivingBack* giving_back = nullptr;

// PyTorch's sizes, because the allocator sees them.
uint64_t segment_bytes(void*, uint64_t bytes) {
  if (bytes <= kSmallSize) return kSmallBuffer;
  if (bytes < kMinLargeAlloc) return large_segment_size();
  return (bytes + kRoundLarge - 1) / kRoundLarge * kRoundLarge;
}

uint32_t allocate(void* context, uint64_t bytes, uint64_t* address) {
  const auto& own = *static_cast<OwnAllocator*>(context);
  try {
    const c10::cuda::CUDAGuard guard(own.device);
    *address = std::bit_cast<uint64_t>(own.allocator->raw_alloc(bytes));
    return *address == 0 ? SPILLWAY_SEGMENT_REFUSED : SPILLWAY_SEGMENT_MADE;
  } catch (...) {
    own_failure = std::current_exception();
    return SPILLWAY_SEGMENT_FAILED;
  }
}

void warn(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& error) {
    TORCH_WARN("a memory pool's own allocator failed when memory was given back to it: ", error.what());
  } catch (...) {
    TORCH_WARN("a memory pool's own allocator failed when memory was given back to it");
  }
}

void free_segment(void* context, uint64_t address, uint64_t) {
  const auto& own = *static_cast<OwnAllocator*>(context);
  try {
    const c10::cuda::CUDAGuard guard(own.device);
    own.allocator->raw_delete(std::bit_cast<void*>(address));
  } catch (...) {
    if (giving_back != nullptr)
      giving_back->keep(std::current_exception());
    else
      warn(std::current_exception());
  }
}

void end(void* context) {
  delete static_cast<OwnAllocator*>(context);
}

}  // namespace

spillway_segment_source source_of(int device, PoolAllocator allocator) {
  auto* const own = new OwnAllocator{static_cast<c10::DeviceIndex>(device), std::move(allocator)};
  return {sizeof(spillway_segment_source), own, &segment_bytes, &allocate, &free_segment, &end};
}

void throw_own_failure() {
  if (const std::exception_ptr failure = std::exchange(own_failure, nullptr)) std::rethrow_exception(failure);
}

GivingBack::GivingBack() : outer_(std::exchange(giving_back, this)) {}

GivingBack::~GivingBack() {
  giving_back = outer_;
}

void GivingBack::keep(std::exception_ptr failure) {
  if (failure_ == nullptr) failure_ = std::move(failure);
}

void GivingBack::throw_failure() {
  if (failure_ != nullptr) std::rethrow_exception(std::exchange(failure_, nullptr));
}

}  // namespace spillway::libtorch
