#include "interpose/pins.h"

#include <pthread.h>

#include "interpose/core.h"

namespace spillway::interpose {
namespace {

struct Retained {
  CUmemGenericAllocationHandle handle;
  uint64_t address;
};

constexpr uint32_t kMost = 4096;
pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
Retained retained[kMost];

}  // namespace

// Where the table is full the memory stays pinned: it then only stays where it is.
void pin_handle(CUmemGenericAllocationHandle handle, uint64_t address) {
  if (!pin(address, 1)) return;
  pthread_mutex_lock(&lock);
  if (const uint32_t count = retained_handles.load(); count < kMost) {
    retained[count] = {handle, address};
    retained_handles.store(count + 1);
  }
  pthread_mutex_unlock(&lock);
}

// Takes the handle out of the table; 0: it is not in it.
static uint64_t take_out(CUmemGenericAllocationHandle handle) {
  uint64_t address = 0;
  pthread_mutex_lock(&lock);
  const uint32_t count = retained_handles.load();
  for (uint32_t i = 0; i < count && address == 0; ++i) {
    if (retained[i].handle != handle) continue;
    address = retained[i].address;
    retained[i] = retained[count - 1];
    retained_handles.store(count - 1);
  }
  pthread_mutex_unlock(&lock);
  return address;
}

void unpin_handle(CUmemGenericAllocationHandle handle) {
  if (const uint64_t address = take_out(handle); address != 0) unpin(address);
}

void keep_pinned(CUmemGenericAllocationHandle handle) {
  take_out(handle);
}

void pin_range(uint64_t address, uint64_t bytes) {
  pin(address, bytes);
}

}  // namespace spillway::interpose
