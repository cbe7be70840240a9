#include "strategies/framework/deadline_worker.h"

#include <algorithm>
#include <utility>

#include "base/service_thread.h"
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

bool DeadlineWorker::run(std::function<void()> work, Deadline deadline, const Stop& stop) {
  const Locked lock(mutex_);
  return !busy_ && begin(std::move(work), deadline, stop);
}

bool DeadlineWorker::is_free_by(Deadline deadline, const Stop& stop) {
  for (auto now = std::chrono::steady_clock::now(); busy_ && now < deadline && (stop == nullptr || !stop());
       now = std::chrono::steady_clock::now())
    changed_.wait_until(mutex_, stop == nullptr ? deadline : std::min(deadline, now + kLookAgain));
  return !busy_;
}

bool DeadlineWorker::run_when_free(std::function<void()> work, Deadline deadline, const Stop& stop) {
  const Locked lock(mutex_);
  return is_free_by(deadline, stop) && begin(std::move(work), deadline, stop);
}

bool DeadlineWorker::wait_for(uint64_t number, Deadline deadline) {
  while (ended_ < number)
    if (changed_.wait_until(mutex_, deadline) == std::cv_status::timeout) break;
  return ended_ >= number;
}

bool DeadlineWorker::begin(std::function<void()> work, Deadline deadline, const Stop& stop) {
  if (!started_) {
    started_ = start_service_thread([this] { serve(); });
    if (!started_) return false;
  }
  work_ = std::move(work);
  busy_ = true;
  changed_.notify_all();
  const uint64_t number = ++begun_;
  if (stop == nullptr) return wait_for(number, deadline) && done_;
  for (auto now = std::chrono::steady_clock::now(); now < deadline && !stop();
       now = std::chrono::steady_clock::now())
    if (wait_for(number, std::min(deadline, now + kLookAgain))) break;
  return ended_ >= number && done_;
}

std::function<void()> DeadlineWorker::next_work() {
  const Locked lock(mutex_);
  while (!busy_) changed_.wait(mutex_);
  return std::exchange(work_, nullptr);
}

void DeadlineWorker::serve() {
  for (;;) {
    const bool done = do_in_a_span(next_work());
    const Locked lock(mutex_);
    done_ = done;
    busy_ = false;
    ++ended_;
    changed_.notify_all();
  }
}

}  // namespace spillway
