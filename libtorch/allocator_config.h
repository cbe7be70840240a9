// PYTORCH_CUDA_ALLOC_CONF as LibTorch has read it, and the sizes of its own segments. Both stand for all
// kinds of devices since 2.10; older versions have CUDA's settings apart, and show no sizes.
//
// Units: bytes.
#pragma once
#include <c10/cuda/CUDAAllocatorConfig.h>
#if SPILLWAY_LIBTORCH >= 210
#include <c10/core/AllocatorConfig.h>
#endif

#include <cstddef>
#include <string>

namespace spillway::libtorch {

using CudaConfig = c10::cuda::CUDACachingAllocator::CUDAAllocatorConfig;

#if SPILLWAY_LIBTORCH >= 210
using Config = c10::CachingAllocator::AcceleratorAllocatorConfig;
using c10::CachingAllocator::kMinBlockSize;
using c10::CachingAllocator::kMinLargeAlloc;
using c10::CachingAllocator::kRoundLarge;
using c10::CachingAllocator::kSmallBuffer;
using c10::CachingAllocator::kSmallSize;
#else
using Config = CudaConfig;
inline constexpr size_t kMinBlockSize = 512;
inline constexpr size_t kMinLargeAlloc = size_t{10} << 20;
inline constexpr size_t kRoundLarge = size_t{2} << 20;
inline constexpr size_t kSmallBuffer = size_t{2} << 20;
inline constexpr size_t kSmallSize = size_t{1} << 20;
#endif

// Of large segments; a setting since 2.11.
template <class All = Config>
size_t large_segment_size() {
  if constexpr (requires { All::large_segment_size(); }) return All::large_segment_size();
  return size_t{20} << 20;
}

}  // namespace spillway::libtorch
