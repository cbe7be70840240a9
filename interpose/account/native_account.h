// The account itself, for the parts that keep it (native*.cpp): the process's budget, and the one table of
// what the program holds.
//
// Thread-safety: any thread. A child of fork begins with nothing. Errors: where the core has no budget,
// nothing is counted. Units: bytes.
#pragma once
#include <cstdint>

#include "interpose/account/native_table.h"
#include "interpose/plain_lock.h"
#include "strategies/core/core.h"

namespace spillway::interpose {

// Null: nothing is counted.
spillway_budget* native_budget();
// Whether anything is on the account: nothing is noted before, and in `observe` never.
bool is_counting();
bool is_device(int device);
// Of what was drawn for a driver's call. Devices that are none, and 0 bytes, change nothing.
void give_back(int device, uint64_t bytes);

extern PlainMutex<LockOrder::kNativeTable> native_table_lock;  // HeldTable's

// The table, which is this thread's as long as the object lives. The driver is not called meanwhile.
class SPILLWAY_SCOPED_CAPABILITY HeldTable {
 public:
  HeldTable() SPILLWAY_ACQUIRE(native_table_lock);
  ~HeldTable() SPILLWAY_RELEASE();
  HeldTable(const HeldTable&) = delete;
  HeldTable& operator=(const HeldTable&) = delete;
  NativeTable* operator->() const SPILLWAY_REQUIRES(native_table_lock);
  // The serial that was given last.
  uint64_t newest_serial() const SPILLWAY_REQUIRES(native_table_lock);
  // With a serial of its own. False: there was no memory for it, and its bytes went back.
  bool add(NativeEntry entry) const SPILLWAY_REQUIRES(native_table_lock);
  // Takes it out, and its bytes go back.
  void drop(NativeEntry* entry) const SPILLWAY_REQUIRES(native_table_lock);
};

}  // namespace spillway::interpose
