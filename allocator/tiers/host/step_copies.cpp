#include "allocator/tiers/host/step_copies.h"

#include <algorithm>

namespace spillway {

void StepCopies::begin(Device& device, uint64_t bytes) {
  while (bytes != 0 && next_ < waiting_.size() && error_ == CUDA_SUCCESS) {
    Waiting& next = waiting_[next_];
    const uint64_t count = std::min(bytes, next.bytes);
    CopyStream::Copy copy;
    error_ = device.copies().copy(next.to, next.from, count, &copy);
    if (error_ == CUDA_SUCCESS) begun_.push_back(copy);
    next = {next.to + count, next.from + count, next.bytes - count};
    next_ += next.bytes == 0 ? 1 : 0;
    bytes -= count;
  }
}

CUresult StepCopies::wait(Device& device, double* us) {
  *us = 0;
  for (CopyStream::Copy& copy : begun_) {
    double took_us = 0;
    const CUresult result = device.copies().wait(&copy, &took_us);
    if (error_ == CUDA_SUCCESS) error_ = result;
    *us += took_us;
  }
  begun_.clear();
  return error_;
}

}  // namespace spillway
