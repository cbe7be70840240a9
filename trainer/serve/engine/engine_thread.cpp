#include "trainer/serve/engine/engine_thread.h"

namespace spillway::trainer::serve {

EngineThread::EngineThread(std::unique_ptr<Engine> engine, std::function<void()> stopped_by_itself)
    : stats_(engine->stats()),
      engine_(std::move(engine)),
      stopped_by_itself_(std::move(stopped_by_itself)),
      thread_([this] { run(); }) {}

EngineThread::~EngineThread() {
  {
    const Locked lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

uint64_t EngineThread::submit(Job job) {
  uint64_t ticket = 0;
  bool failed = false;
  {
    const Locked lock(mutex_);
    ticket = next_ticket_++;
    failed = !failure_.empty();
    if (!failed) {
      submitted_.emplace_back(ticket, std::move(job));
      ++stats_.waiting;
    }
  }
  wake_.notify_one();
  if (failed && job.on_end) job.on_end(Finish::kBroken);
  return ticket;
}

void EngineThread::cancel(uint64_t ticket) {
  {
    const Locked lock(mutex_);
    cancelled_.push_back(ticket);
  }
  wake_.notify_one();
}

EngineStats EngineThread::stats() const {
  const Locked lock(mutex_);
  return stats_;
}

std::string EngineThread::failure() const {
  const Locked lock(mutex_);
  return failure_;
}

bool EngineThread::take_orders() {
  std::vector<std::pair<uint64_t, Job>> submitted;
  std::vector<uint64_t> cancelled;
  bool stop;
  {
    const Locked lock(mutex_);
    stats_ = engine_->stats();
    const auto has_work = [this]() SPILLWAY_REQUIRES(mutex_) {
      return stop_ || !submitted_.empty() || !cancelled_.empty() || stats_.running + stats_.waiting > 0;
    };
    wake_.wait(mutex_, has_work);
    submitted.swap(submitted_);
    cancelled.swap(cancelled_);
    stop = stop_;
  }
  for (auto& [ticket, job] : submitted) {
    job.on_end = [this, ticket = ticket, on_end = std::move(job.on_end)](Finish finish) {
      ids_.erase(ticket);
      if (on_end) on_end(finish);
    };
    const uint64_t id = engine_->submit(std::move(job));
    ids_[ticket] = id;
  }
  for (const uint64_t ticket : cancelled)
    if (const auto found = ids_.find(ticket); found != ids_.end()) engine_->cancel(found->second);
  return !stop;
}

void EngineThread::run() {
  std::string why;
  try {
    while (take_orders()) engine_->step();
  } catch (const c10::Error& error) {
    why = error.what_without_backtrace();
  } catch (const std::exception& error) {
    why = error.what();
  }
  if (!why.empty()) {
    const Locked lock(mutex_);
    failure_ = why;
  }
  while (!ids_.empty()) engine_->cancel(ids_.begin()->second);
  std::vector<std::pair<uint64_t, Job>> left;
  {
    const Locked lock(mutex_);
    left.swap(submitted_);
  }
  for (auto& [ticket, job] : left)
    if (job.on_end) job.on_end(Finish::kCancelled);
  if (!why.empty() && stopped_by_itself_) stopped_by_itself_();
}

}  // namespace spillway::trainer::serve
