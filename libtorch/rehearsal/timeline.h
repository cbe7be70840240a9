// A curve of memory over allocator events in bounded space: neighbouring samples are joined, keeping their
// highest values, when there is no more room.
//
// Thread-safety: none. Units: bytes; events count from 1.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace spillway::rehearsal {

struct Sample {
  uint64_t last_event = 0;
  uint64_t allocated = 0, reserved = 0;  // the highest since the previous sample
};

class Timeline {
 public:
  // REQUIRES: capacity is even and at least 2.
  explicit Timeline(size_t capacity = 512) : capacity_(capacity) {}

  void add(uint64_t event, uint64_t allocated, uint64_t reserved) {
    if (samples_.empty() || in_last_ == stride_) open_sample();
    Sample& last = samples_.back();
    last = {event, std::max(last.allocated, allocated), std::max(last.reserved, reserved)};
    ++in_last_;
  }

  const std::vector<Sample>& samples() const { return samples_; }

 private:
  void open_sample() {
    if (samples_.size() == capacity_) halve();
    samples_.emplace_back();
    in_last_ = 0;
  }
  void halve() {
    for (size_t i = 0; i < capacity_ / 2; ++i) {
      const Sample& a = samples_[2 * i];
      const Sample& b = samples_[2 * i + 1];
      samples_[i] = {b.last_event, std::max(a.allocated, b.allocated), std::max(a.reserved, b.reserved)};
    }
    samples_.resize(capacity_ / 2);
    stride_ *= 2;
  }

  size_t capacity_;
  uint64_t stride_ = 1, in_last_ = 0;
  std::vector<Sample> samples_;
};

}  // namespace spillway::rehearsal
