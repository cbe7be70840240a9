#include "allocator/streams/progress_marks.h"

namespace spillway {
namespace {
constexpr size_t kMostMarks = 64;
// With so few ahead the queue is short again, and each mark counts.
constexpr size_t kFewMarks = kMostMarks / 4;
}  // namespace

// Streams pass their marks in any order.
void ProgressMarks::look() {
  const size_t before = ahead_.size();
  std::erase_if(ahead_, [this](CUevent event) {
    if (device_.query(event) != CUDA_SUCCESS) return false;
    device_.put_back(event);
    return true;
  });
  passed_ += before - ahead_.size();
  if (ahead_.size() <= kFewMarks) stride_ = 1;
}

void ProgressMarks::thin_out() {
  bool odd = false;
  std::erase_if(ahead_, [&](CUevent event) {
    odd = !odd;
    if (odd) device_.put_back(event);
    return odd;
  });
  stride_ *= 2;
}

bool ProgressMarks::is_due() {
  const Locked guard(mutex_);
  if (++since_ < stride_) return false;
  since_ = 0;
  return true;
}

void ProgressMarks::keep(CUevent event) {
  const Locked guard(mutex_);
  if (ahead_.size() == kMostMarks) look();
  if (ahead_.size() == kMostMarks) thin_out();
  ahead_.push_back(event);
}

// Recorded without the lock: a driver whose queue is full holds the thread, and others count meanwhile.
void ProgressMarks::mark(StreamId stream) {
  if (!is_due() || device_.capturing(stream)) return;
  CUresult result = CUDA_SUCCESS;
  if (CUevent event = device_.record(stream, &result); event != nullptr) keep(event);
}

uint64_t ProgressMarks::passed() {
  const Locked guard(mutex_);
  look();
  return passed_;
}

void ProgressMarks::end() {
  const Locked guard(mutex_);
  for (CUevent event : ahead_) device_.put_back(event);
  ahead_.clear();
}

}  // namespace spillway
