#include "allocator/streams/progress_marks.h"

#include <algorithm>
#include <utility>

namespace spillway {
namespace {
constexpr size_t kMostMarks = 64;
// With so few ahead the queue is short again, and each mark counts.
constexpr size_t kFewMarks = kMostMarks / 4;
// At each mark that passes: after 350 of them half is left.
constexpr double kForgets = 0.998;
}  // namespace

// Streams pass their marks in any order.
void ProgressMarks::look() {
  const size_t before = ahead_.size();
  std::erase_if(ahead_, [this](const Mark& mark) {
    if (device_.query(mark.event) != CUDA_SUCCESS) return false;
    passes(mark);
    return true;
  });
  passed_ += before - ahead_.size();
  if (ahead_.size() <= kFewMarks) stride_ = 1;
}

void ProgressMarks::passes(const Mark& mark) {
  const bool one_after_the_other = mark.behind && last_.event != nullptr && last_.stream == mark.stream;
  const double us =
      one_after_the_other ? device_.timed_events().ms_between(last_.event, mark.event) * 1000.0 : 0;
  slowest_us_ = std::max(us, slowest_us_ * kForgets);
  device_.timed_events().put_back(std::exchange(last_, mark).event);
}

void ProgressMarks::thin_out() {
  bool odd = false;
  Mark gone;
  std::erase_if(ahead_, [&](Mark& mark) {
    odd = !odd;
    mark.behind = mark.behind && (odd || (gone.behind && gone.stream == mark.stream));
    if (!odd) return false;
    device_.timed_events().put_back(mark.event);
    gone = mark;
    return true;
  });
  stride_ *= 2;
}

bool ProgressMarks::is_due() {
  const Locked guard(mutex_);
  if (++since_ < stride_) return false;
  since_ = 0;
  return true;
}

void ProgressMarks::keep(Mark mark) {
  const Locked guard(mutex_);
  if (ahead_.size() == kMostMarks) look();
  if (ahead_.size() == kMostMarks) thin_out();
  mark.behind = !ahead_.empty() && ahead_.back().stream == mark.stream &&
                device_.query(ahead_.back().event) != CUDA_SUCCESS;
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
  ahead_.push_back(std::exchange(last_, {}));
  for (const Mark& mark : ahead_) device_.timed_events().put_back(mark.event);
  ahead_.clear();
}

}  // namespace spillway
