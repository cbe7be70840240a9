// Locks that know their place in the order and what they guard: std::mutex, std::shared_mutex and a spin lock
// behind annotations that Clang checks, and scopes that hold them. A condition is waited for by
// std::condition_variable_any on the mutex itself.
//
// Thread-safety: as the standard's. Ownership: none is copied or moved. Errors: none.
#pragma once
#include <mutex>
#include <shared_mutex>

#include "base/lock_order.h"
#include "base/thread_annotations.h"

namespace spillway {

template <LockOrder order, class Lock = std::mutex>
class SPILLWAY_CAPABILITY("mutex") Mutex {
 public:
  void lock() SPILLWAY_ACQUIRE() {
    lock_order::taking(order);
    lock_.lock();
    lock_order::taken(order);
  }
  // A try waits for nobody, so it may come out of order.
  bool try_lock() SPILLWAY_TRY_ACQUIRE(true) {
    if (!lock_.try_lock()) return false;
    lock_order::taken(order);
    return true;
  }
  void unlock() SPILLWAY_RELEASE() {
    lock_order::released(order);
    lock_.unlock();
  }

 private:
  Lock lock_;
};

template <LockOrder order>
class SPILLWAY_CAPABILITY("shared mutex") SharedMutex {
 public:
  void lock() SPILLWAY_ACQUIRE() {
    lock_order::taking(order);
    lock_.lock();
    lock_order::taken(order);
  }
  void unlock() SPILLWAY_RELEASE() {
    lock_order::released(order);
    lock_.unlock();
  }
  void lock_shared() SPILLWAY_ACQUIRE_SHARED() {
    lock_order::taking(order);
    lock_.lock_shared();
    lock_order::taken(order);
  }
  void unlock_shared() SPILLWAY_RELEASE_SHARED() {
    lock_order::released(order);
    lock_.unlock_shared();
  }

 private:
  std::shared_mutex lock_;
};

struct Adopt {};
inline constexpr Adopt kAdopt;

// Holds a lock to the end of the scope; with kAdopt one that a try has taken.
template <class Lock>
class SPILLWAY_SCOPED_CAPABILITY Locked {
 public:
  explicit Locked(Lock& lock) SPILLWAY_ACQUIRE(lock) : lock_(lock) { lock_.lock(); }
  Locked(Lock& lock, Adopt) SPILLWAY_REQUIRES(lock) : lock_(lock) {}
  ~Locked() SPILLWAY_RELEASE() { lock_.unlock(); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  Lock& lock_;
};

// The same for those that only read what it guards.
template <class Lock>
class SPILLWAY_SCOPED_CAPABILITY SharedLocked {
 public:
  explicit SharedLocked(Lock& lock) SPILLWAY_ACQUIRE_SHARED(lock) : lock_(lock) { lock_.lock_shared(); }
  ~SharedLocked() SPILLWAY_RELEASE_GENERIC() { lock_.unlock_shared(); }
  SharedLocked(const SharedLocked&) = delete;
  SharedLocked& operator=(const SharedLocked&) = delete;

 private:
  Lock& lock_;
};

}  // namespace spillway
