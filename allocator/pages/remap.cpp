#include "allocator/pages/remap.h"

namespace spillway {

bool Staging::drop(Device& device) {
  if (mapped && device.unmap(range.begin, range.bytes()) != CUDA_SUCCESS) return false;
  mapped = false;
  if (range.bytes() != 0 && device.release_range(range) != CUDA_SUCCESS) return false;
  range = {};
  return true;
}

CUresult Remap::begin() {
  CUresult result = device_->reserve(range_.bytes(), &staging_.range);
  if (result != CUDA_SUCCESS) return result;
  result = device_->map(staging_.range.begin, to_);
  staging_.mapped = result == CUDA_SUCCESS;
  return staging_.mapped ? device_->copies().copy(staging_.range.begin, range_.begin, range_.bytes(), &copy_)
                         : result;
}

CUresult Remap::finish() {
  CUresult result = device_->copies().wait(&copy_, &copy_us_);
  undo();
  if (result == CUDA_SUCCESS) result = device_->unmap(range_.begin, range_.bytes());
  if (result != CUDA_SUCCESS) return result;
  result = device_->map(range_.begin, to_);
  if (result != CUDA_SUCCESS) lost_ = device_->map(range_.begin, from_) != CUDA_SUCCESS;
  return result;
}

}  // namespace spillway
