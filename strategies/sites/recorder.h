// Notes in the trace which places of the program hold the memory: the stacks of sampled allocations, and of
// requests that failed.
//
// Thread-safety: every function may be called from any thread that holds no lock of the allocator's.
// Ownership: never destroyed. Errors: where no stack can be taken, or the trace has no room for its text,
// nothing is noted.
#pragma once
#include <unordered_map>

#include "allocator/allocator.h"
#include "base/mutex.h"
#include "strategies/sites/python_stack.h"
#include "strategies/sites/sampler.h"

namespace spillway {

class SiteRecorder {
 public:
  SiteRecorder(Allocator& allocator, trace::Trace& trace, uint64_t interval_bytes);

  // The block at `address` was allocated by the calling thread, and `Sampler::due` said so.
  void allocated(uint64_t address, uint64_t bytes) noexcept;
  // The request of this incident was the calling thread's.
  void failed(DeviceId device, uint64_t incident) noexcept;

  // What a thread without a Python stack is doing: writes a text of at most `size` bytes with its zero, or
  // nothing. Null: not known.
  void set_label(void (*label)(char* text, size_t size)) noexcept { label_.store(label); }

 private:
  uint64_t site_here();
  uint64_t label_here();
  uint64_t site_of(std::span<const PythonFrame> frames);

  Allocator& allocator_;
  trace::Trace& trace_;
  Sampler sampler_;
  std::atomic<void (*)(char*, size_t)> label_{nullptr};
  Mutex<LockOrder::kSites> mutex_;
  std::unordered_map<uint64_t, uint64_t> sites_
      SPILLWAY_GUARDED_BY(mutex_);  // a stack's hash → its number in the trace
};

}  // namespace spillway
