// A lock of the C library's. std::mutex may throw, which needs the C++ runtime that this library goes
// without.
//
// Thread-safety: any thread. Ownership: none. Errors: none.
#pragma once
#include <pthread.h>

#include "base/mutex.h"

namespace spillway::interpose {

class PlainLock {
 public:
  void lock() { pthread_mutex_lock(&lock_); }
  void unlock() { pthread_mutex_unlock(&lock_); }
  void free_in_child() { pthread_mutex_init(&lock_, nullptr); }

 private:
  pthread_mutex_t lock_ = PTHREAD_MUTEX_INITIALIZER;
};

template <LockOrder order>
using PlainMutex = Mutex<order, PlainLock>;

}  // namespace spillway::interpose
