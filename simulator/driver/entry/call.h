// The entry of every exported function: takes the lock, refuses a fork's child and a program without cuInit,
// charges the virtual clock, lets the fault plan act, and knows who called.
//
// Thread-safety: the object belongs to one call. Ownership: it holds the lock until it ends or `unlock`.
// Errors: `refused` is what the function has to return at once, CUDA_SUCCESS if it may go on. Units: none.
#pragma once
#include <mutex>
#include <vector>

#include "simulator/driver/entry/functions.h"
#include "simulator/driver/machine/state.h"
#include "simulator/driver/process/reads.h"

namespace spillway::simulator {

// Who called: the return address and the frame of an exported function.
struct Caller {
  Site site = nullptr;
  const void* frame = nullptr;
};

class Call {
 public:
  Call(Function function, Caller caller);
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  ~Call();

  // The innermost of the calling thread.
  static Call* current();

  CUresult refused() const { return refused_; }
  Site site() const { return site_; }
  // What the call costs for the bytes that it is about, and for the mappings in its range.
  void charge_extent(uint64_t bytes, uint64_t mappings = 0);
  // So many bytes of host memory become pinned.
  void charge_pinning(uint64_t bytes);
  // The observer of reads is told, and programs of work from outside, when the call has given up the lock.
  void read_by_host(const HostRead& read) { reads_.push_back(read); }
  void unlock();
  void lock() { lock_.lock(); }

 private:
  std::unique_lock<MachineMutex> lock_;
  void charge(uint64_t ns);

  Call* outer_;
  Function function_;
  Site site_;
  CUresult refused_ = CUDA_SUCCESS;
  std::vector<HostRead> reads_;
};

// A function that is another one with other arguments, such as the _ptsz variants: it is the one that was
// called.
class OuterSite {
 public:
  explicit OuterSite(Caller caller);
  ~OuterSite();
  OuterSite(const OuterSite&) = delete;
  OuterSite& operator=(const OuterSite&) = delete;
};

}  // namespace spillway::simulator

#define SPILLWAY_SIM_CALLER                                 \
  spillway::simulator::Caller {                             \
    __builtin_return_address(0), __builtin_frame_address(0) \
  }

#define SPILLWAY_SIM_ENTER(function)                                                       \
  [[maybe_unused]] spillway::simulator::Call call(spillway::simulator::Function::function, \
                                                  SPILLWAY_SIM_CALLER);                    \
  if (call.refused() != CUDA_SUCCESS) return call.refused();                               \
  [[maybe_unused]] spillway::simulator::Machine& sim = spillway::simulator::machine()

// NAME_SUFFIX(parameters) is NAME(arguments).
#define SPILLWAY_SIM_FORWARD(forwarding, parameters, name, arguments) \
  CUresult CUDAAPI forwarding parameters {                            \
    spillway::simulator::OuterSite outer(SPILLWAY_SIM_CALLER);        \
    return name arguments;                                            \
  }
