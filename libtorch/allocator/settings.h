// The keys of PYTORCH_CUDA_ALLOC_CONF that mean something to Spillway. PyTorch reads and refuses them; those
// that bound the native allocator's fragmentation have nothing to bound here and are accepted.
//
// Thread-safety: a value, read once when CUDA initialises. Units: bytes.
#pragma once
#include <cstdint>
#include <limits>

namespace spillway::libtorch {

struct Settings {
  double fraction = 1;                                       // per_process_memory_fraction
  uint64_t oversize = std::numeric_limits<uint64_t>::max();  // max_split_size_mb: counted from here on
  bool divides = false;                                      // roundup_power2_divisions
  bool rejects = false;                                      // throw_on_cudamalloc_oom

  static Settings read();
  bool pads() const { return divides; }
  // What a block for `bytes` takes.
  uint64_t padded(uint64_t bytes) const;
  // Whether it counts as oversize; padding at most doubles it.
  bool is_oversize(uint64_t bytes) const { return bytes >= oversize / 2 && padded(bytes) >= oversize; }
};

}  // namespace spillway::libtorch
