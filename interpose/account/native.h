// What the program takes of each device by calls of the driver: drawn from the process's budget before the
// driver is asked, refused as the driver would where that passes the limit, and given back when it is freed.
//
// Counted: cuMemAlloc and its like with whole granules of 2 MiB from 1 MiB on (smaller ones share granules),
// managed memory as if it lay on the device, arrays by their elements, pages of cuMemCreate on a device until
// they are released and unmapped everywhere, stream-ordered allocations while they live, and what the
// driver has reserved for graphs' allocation nodes (native_graphs.h). Not counted: what other processes or
// libraries share (imports), what the driver takes for itself, and what a call that is not hooked takes.
//
// Thread-safety: any thread. A child of fork begins with nothing. In `observe` nothing is counted. Errors:
// what the host has no memory to note is not counted.
#pragma once
#include <cstddef>
#include <cstdint>

#include "interpose/account/native_account.h"
#include "interpose/account/native_table.h"
#include "interpose/hooks/allocation_size.h"

namespace spillway::interpose {

// The device of the calling thread's context; -1: none.
int current_device();

// An allocation under way. Refused: the driver is not asked. Otherwise one of the others follows.
class Draw {
 public:
  // `bytes` 0, or not on a device: nothing is drawn.
  explicit Draw(const Asked& asked);
  bool refused() const { return refused_; }
  void keep(Native kind, uint64_t key) const;
  void take_back() const;

 private:
  spillway_budget* budget_ = nullptr;
  uint64_t bytes_ = 0;
  int device_ = -1;
  bool refused_ = false;
};
// Whether the calling thread's last refused call would have passed the limit, wherever else there is room.
bool was_over_limit();

// A free under way: what it finds is given back only when the driver has freed it, and only if nobody was
// given the same address meanwhile.
class Return {
 public:
  Return(Native kind, uint64_t key);
  void finish() const;

 private:
  NativeEntry seen_;
};

// Bytes that the driver told, within the limit and beside the reserve.
void tell_within_budget(size_t* free, size_t* total, int device);

}  // namespace spillway::interpose
