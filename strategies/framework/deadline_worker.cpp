#include "strategies/framework/deadline_worker.h"

#include <algorithm>
#include <system_error>
#include <thread>
#include <utility>

#include "strategies/processes/primary_context_guard.h"

namespace spillway {
namespace {
constexpr auto kLookAgain = std::chrono::milliseconds(5);

bool do_in_a_span(const std::function<void()>& work) {
  end_spans_at_exit();
  const DriverSpan span;
  if (span.begun()) work();
  return span.begun();
}
}  // namespace

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
  const auto ended = [this, number = ++begun_] { return ended_ >= number; };
  if (stop == nullptr) return changed_.wait_until(lock, deadline, ended) && done_;
  for (auto now = std::chrono::steady_clock::now(); now < deadline && !stop();
       now = std::chrono::steady_clock::now())
    if (changed_.wait_until(lock, std::min(deadline, now + kLookAgain), ended)) break;
  return ended() && done_;
}

void Helper::serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return busy_; });
    const std::function<void()> work = std::exchange(work_, nullptr);
    lock.unlock();
    const bool done = do_in_a_span(work);
    lock.lock();
    done_ = done;
    busy_ = false;
    ++ended_;
    changed_.notify_all();
  }
}

}  // namespace spillway
