#include "strategies/helper.h"

#include <algorithm>
#include <system_error>
#include <thread>
#include <utility>

namespace spillway {
namespace {
constexpr auto kLookAgain = std::chrono::milliseconds(5);
}

bool Helper::run(std::function<void()> work, Deadline deadline, bool (*stop)()) {
  std::unique_lock lock(mutex_);
  return !busy_ && begin(std::move(work), deadline, stop, lock);
}

bool Helper::run_when_free(std::function<void()> work, Deadline deadline) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, deadline, [this] { return !busy_; }) &&
         begin(std::move(work), deadline, nullptr, lock);
}

bool Helper::begin(std::function<void()> work, Deadline deadline, bool (*stop)(),
                   std::unique_lock<std::mutex>& lock) {
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
  const auto ended = [this] { return !busy_; };
  if (stop == nullptr) return changed_.wait_until(lock, deadline, ended);
  for (auto now = std::chrono::steady_clock::now(); now < deadline && !stop();
       now = std::chrono::steady_clock::now())
    if (changed_.wait_until(lock, std::min(deadline, now + kLookAgain), ended)) return true;
  return ended();
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
