#include "allocator/streams/progress_marks.h"

namespace spillway {
namespace {
constexpr size_t kMostMarks = 64;
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
}

void ProgressMarks::mark(StreamId stream) {
  const Locked guard(mutex_);
  look();
  if (ahead_.size() == kMostMarks || device_.capturing(stream)) return;
  CUresult result = CUDA_SUCCESS;
  if (CUevent event = device_.record(stream, &result); event != nullptr) ahead_.push_back(event);
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
