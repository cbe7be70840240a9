#include "allocator/streams/progress_marks.h"

#include <algorithm>
#include <utility>

namespace spillway {
namespace {
constexpr size_t kMostMarks = 64;
// With so few ahead the queue is short again, and each mark counts.
constexpr size_t kFewMarks = kMostMarks / 4;
constexpr size_t kMostStreams = 16;
// At each mark that passes: after 70 of them half is left.
constexpr double kForgets = 0.99;
}  // namespace

// Streams pass their marks in any order.
void ProgressMarks::look() {
  const size_t before = ahead_.size();
  std::erase_if(ahead_, [this](const Mark& mark) SPILLWAY_REQUIRES(mutex_) {
    if (device_.query(mark.event) != CUDA_SUCCESS) return false;
    passes(mark);
    return true;
  });
  passed_ += before - ahead_.size();
  if (ahead_.size() <= kFewMarks) stride_ = 1;
}

void ProgressMarks::passes(const Mark& mark) {
  EventPool& events = device_.timed_events();
  double us = 0;
  const auto before = std::ranges::find(passed_last_, mark.stream, &Mark::stream);
  if (before != passed_last_.end()) {
    if (mark.behind) us = events.ms_between(before->event, mark.event) * 1000.0;
    events.put_back(before->event);
    passed_last_.erase(before);
  } else if (passed_last_.size() == kMostStreams) {
    events.put_back(passed_last_.front().event);
    passed_last_.erase(passed_last_.begin());
  }
  passed_last_.push_back(mark);
  slowest_us_ = std::max(us, slowest_us_ * kForgets);
}

// Every other one stays. What lies behind one that was dropped lies behind the one before that.
void ProgressMarks::thin_out() {
  std::vector<Mark> kept;
  for (size_t i = 0; i < ahead_.size(); ++i) {
    Mark mark = ahead_[i];
    if (i % 2 == 0) {
      device_.timed_events().put_back(mark.event);
      continue;
    }
    const Mark& dropped = ahead_[i - 1];
    mark.behind = mark.behind && (dropped.stream != mark.stream || dropped.behind);
    kept.push_back(mark);
  }
  ahead_ = std::move(kept);
  stride_ *= 2;
}

bool ProgressMarks::is_due() {
  const Locked guard(mutex_);
  if (++since_ < stride_) return false;
  since_ = 0;
  return true;
}

// The last mark of the stream, which the next one is behind.
bool ProgressMarks::is_ahead(StreamId stream) {
  const auto last =
      std::find_if(ahead_.rbegin(), ahead_.rend(), [&](const Mark& mark) { return mark.stream == stream; });
  return last != ahead_.rend() && device_.query(last->event) != CUDA_SUCCESS;
}

void ProgressMarks::keep(Mark mark) {
  const Locked guard(mutex_);
  if (ahead_.size() == kMostMarks) look();
  if (ahead_.size() == kMostMarks) thin_out();
  mark.behind = is_ahead(mark.stream);
  ahead_.push_back(mark);
}

// Recorded without the lock: a driver whose queue is full holds the thread, and others count meanwhile.
void ProgressMarks::mark(StreamId stream) {
  if (!is_due() || device_.capturing(stream)) return;
  if (CUevent event = device_.timed_events().record(reinterpret_cast<CUstream>(stream)))
    keep({.event = event, .stream = stream});
}

uint64_t ProgressMarks::passed() {
  const Locked guard(mutex_);
  look();
  return passed_;
}

double ProgressMarks::slowest_us() {
  const Locked guard(mutex_);
  return slowest_us_;
}

void ProgressMarks::end() {
  const Locked guard(mutex_);
  for (std::vector<Mark>* marks : {&ahead_, &passed_last_}) {
    for (const Mark& mark : *marks) device_.timed_events().put_back(mark.event);
    marks->clear();
  }
}

}  // namespace spillway
