#include "strategies/helper.h"

#include <system_error>
#include <thread>
#include <utility>

namespace spillway {

bool Helper::run(std::function<void()> work, Deadline deadline) {
  std::unique_lock lock(mutex_);
  return !busy_ && begin(std::move(work), deadline, lock);
}

bool Helper::run_when_free(std::function<void()> work, Deadline deadline) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, deadline, [this] { return !busy_; }) &&
         begin(std::move(work), deadline, lock);
}

bool Helper::begin(std::function<void()> work, Deadline deadline, std::unique_lock<std::mutex>& lock) {
  if (!started_) {
    try {
      std::thread([this] { serve(); }).detach();
    } catch (const std::system_error&) {
      return false;
    }
    started_ = true;
  }
  work_ = std::move(work);
  busy_ = true;
  changed_.notify_all();
  return changed_.wait_until(lock, deadline, [this] { return !busy_; });
}

void Helper::serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return busy_; });
    const std::function<void()> work = std::exchange(work_, nullptr);
    lock.unlock();
    work();
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

}  // namespace spillway
