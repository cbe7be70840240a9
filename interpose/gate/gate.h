// The gate over what may touch device memory or hand it on: launches, graph launches, copies, memsets, stream
// memory operations, beginnings of captures, and what pins.h watches, of every device. Open but for the
// moments in which Spillway moves pages.
//
// Thread-safety: any thread. A passing call writes a word of its own thread's and reads one that hardly ever
// changes; who closes the gate makes every thread's writes visible (membarrier), so that passing needs no
// fence. A child of fork finds it open.
#pragma once
#include <atomic>
#include <cstdint>

#include "interpose/hooks/functions.h"

namespace spillway::interpose {

// By its name, of any version.
constexpr bool works_on_memory(const char* name) {
  for (const char* start :
       {"cuLaunch", "cuGraphLaunch", "cuMemcpy", "cuMemset", "cuStreamWriteValue", "cuStreamWaitValue",
        "cuStreamBatchMemOp", "cuMemPrefetch", "cuMemDiscard", "cuMemBatchDecompress", "cuStreamBeginCapture",
        "cuMemRetainAllocationHandle", "cuMemGetHandleForAddressRange", "cuMulticastBind"})
    if (begins_with(name, start)) return true;
  return false;
}

constexpr bool is_gated(Function function) {
  return works_on_memory(name_of(function));
}

// A thread's place in the list of those that have passed.
struct GateSlot {
  std::atomic<uint32_t> passing{0};
  bool listed = false;
  bool holds = false;  // the thread has closed the gate, and passes
  GateSlot* next = nullptr;
};

inline std::atomic<uint32_t> gate_closed{0};
inline std::atomic<bool> gate_needs_fence{false};  // where the kernel has no membarrier
[[gnu::tls_model("initial-exec")]] inline thread_local GateSlot gate_slot;

void list_gate_slot();
void wait_for_gate();

// A gated call under way. Waits while the gate is closed, but not inside another one, for which that waits.
class Passage {
 public:
  Passage() : inside_(gate_slot.passing.load(std::memory_order_relaxed)) {
    if (inside_ != 0) [[unlikely]]
      return;
    if (!gate_slot.listed) [[unlikely]]
      list_gate_slot();
    while (!enter() && !gate_slot.holds) wait_for_gate();
  }
  ~Passage() { gate_slot.passing.store(inside_, std::memory_order_release); }
  Passage(const Passage&) = delete;
  Passage& operator=(const Passage&) = delete;

 private:
  friend uint32_t pass_gate(uint32_t passing);
  static bool enter() {
    gate_slot.passing.store(1, std::memory_order_relaxed);
    if (gate_needs_fence.load(std::memory_order_relaxed)) [[unlikely]]
      std::atomic_thread_fence(std::memory_order_seq_cst);
    else
      std::atomic_signal_fence(std::memory_order_seq_cst);
    if (gate_closed.load(std::memory_order_acquire) == 0) [[likely]]
      return true;
    gate_slot.passing.store(0, std::memory_order_release);
    return false;
  }

  const uint32_t inside_;
};

struct NoPassage {};

// For work of this thread's on device memory that is no call of the driver's: 1 before it, and afterwards
// what that returned. 0, and then what it returned: not while the thread asks for memory in between.
uint32_t pass_gate(uint32_t passing);

// 1: no gated call is under way, and none begins until `open_gate`; 0 where another thread holds it closed
// for `microseconds`, a call does not end within a second, the system has nothing left by which threads are
// told of it, or the program has called what the gate does not hold (hooks/unknown_symbols.h), which is said
// once.
int close_gate(uint64_t microseconds);
void open_gate();

}  // namespace spillway::interpose
