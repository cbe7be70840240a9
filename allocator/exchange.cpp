#include "allocator/exchange.h"

namespace spillway {

bool Staging::drop(Device& device) {
  if (mapped && device.unmap(range.begin, range.bytes()) != CUDA_SUCCESS) return false;
  mapped = false;
  if (range.bytes() != 0 && device.release_range(range) != CUDA_SUCCESS) return false;
  range = {};
  return true;
}

CUresult Exchange::begin() {
  CUresult result = device_->reserve(range_.bytes(), &staging_.range);
  if (result != CUDA_SUCCESS) return result;
  result = device_->map(staging_.range.begin, to_);
  staging_.mapped = result == CUDA_SUCCESS;
  return staging_.mapped ? device_->copy(staging_.range.begin, range_.begin, range_.bytes(), &copied_)
                         : result;
}

// Without an event, or where it can not be waited for, all copies are.
CUresult Exchange::wait() {
  const CUevent event = std::exchange(copied_, nullptr);
  const CUresult result = event == nullptr ? CUDA_ERROR_NOT_READY : device_->wait(event);
  if (event != nullptr) device_->put_back(event);
  return result == CUDA_SUCCESS ? result : device_->wait_for_copies();
}

CUresult Exchange::finish() {
  CUresult result = wait();
  undo();
  if (result == CUDA_SUCCESS) result = device_->unmap(range_.begin, range_.bytes());
  if (result != CUDA_SUCCESS) return result;
  result = device_->map(range_.begin, to_);
  if (result != CUDA_SUCCESS) lost_ = device_->map(range_.begin, from_) != CUDA_SUCCESS;
  return result;
}

}  // namespace spillway
