// Locks that know their place in the order and what they guard: std::mutex, std::recursive_mutex,
// std::shared_mutex and other locks behind annotations that Clang checks, and scopes that hold them. A
// condition is waited for by std::condition_variable_any on the mutex itself.
//
// Thread-safety: as the standard's. Ownership: none is copied or moved. Errors: none.
#pragma once
#include <atomic>
#include <cstdint>
#include <mutex>
#include <shared_mutex>
#include <thread>

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
  // In a child of fork, where the thread that held it is not.
  void free_in_child() { lock_.free_in_child(); }

 private:
  Lock lock_;
};

// One that the thread which holds it may take again.
template <LockOrder order>
class SPILLWAY_CAPABILITY("mutex") RecursiveMutex {
 public:
  void lock() SPILLWAY_ACQUIRE() {
    if (holder_.load(std::memory_order_relaxed) != std::this_thread::get_id()) lock_order::taking(order);
    lock_.lock();
    if (depth_++ > 0) return;
    holder_.store(std::this_thread::get_id(), std::memory_order_relaxed);
    lock_order::taken(order);
  }
  void unlock() SPILLWAY_RELEASE() {
    if (--depth_ == 0) {
      holder_.store({}, std::memory_order_relaxed);
      lock_order::released(order);
    }
    lock_.unlock();
  }

 private:
  std::recursive_mutex lock_;
  std::atomic<std::thread::id> holder_{};
  uint32_t depth_ = 0;  // the holder's
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
