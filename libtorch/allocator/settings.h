// The keys of PYTORCH_CUDA_ALLOC_CONF that mean something to Spillway. PyTorch reads and refuses them; those
// that bound the native allocator's fragmentation have nothing to bound here and are accepted.
//
// Thread-safety: every function may be called from any thread, `follow` once. Units: bytes.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace spillway::libtorch {

class Settings {
 public:
  // Reads all, and again whenever the program changes them (torch.cuda.memory._set_allocator_settings). Not
  // destroyed from then on.
  void follow();
  // per_process_memory_fraction: as natively only what it is at the start counts.
  static double fraction_at_start();
  // throw_on_cudamalloc_oom
  bool rejects() const { return rejects_.load(std::memory_order_relaxed); }
  // roundup_power2_divisions, for a request of that size
  bool pads(uint64_t bytes) const {
    return divides_.load(std::memory_order_relaxed) && (told_ || divisions(bytes) > 1);
  }
  // What a block for `bytes` takes.
  uint64_t padded(uint64_t bytes) const;
  // Whether it counts as oversize (max_split_size_mb); padding at most doubles it.
  bool is_oversize(uint64_t bytes) const {
    const uint64_t oversize = told_ ? oversize_.load(std::memory_order_relaxed) : smallest_oversize();
    return bytes >= oversize / 2 && padded(bytes) >= oversize;
  }

 private:
  void read();
  static size_t divisions(uint64_t bytes);
  static uint64_t smallest_oversize();

  bool told_ = true;  // of changes; else each request asks
  std::atomic<uint64_t> oversize_{std::numeric_limits<uint64_t>::max()};
  std::atomic<bool> divides_{false};
  std::atomic<bool> rejects_{false};
};

}  // namespace spillway::libtorch
