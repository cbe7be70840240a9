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
  if (const CUresult result = device_->reserve(range_.bytes(), &staging_.range); result != CUDA_SUCCESS)
    return result;
  const CUresult result = device_->map(staging_.range.begin, stages_old() ? from_ : to_);
  staging_.mapped = result == CUDA_SUCCESS;
  if (!staging_.mapped) return result;
  return stages_old() ? begin_with_old_beside() : begin_with_new_beside();
}

CUresult Remap::begin_with_new_beside() {
  return device_->copies().copy(staging_.range.begin, range_.begin, range_.bytes(), &copy_);
}

CUresult Remap::begin_with_old_beside() {
  CUresult result = device_->unmap(range_.begin, range_.bytes());
  if (result != CUDA_SUCCESS) return result;
  result = device_->map(range_.begin, to_);
  if (result != CUDA_SUCCESS) {
    lost_ = device_->map(range_.begin, from_) != CUDA_SUCCESS;
    return result;
  }
  result = device_->copies().copy(range_.begin, staging_.range.begin, range_.bytes(), &copy_);
  return result == CUDA_SUCCESS ? result : put_old_back(result);
}

CUresult Remap::put_old_back(CUresult result) {
  lost_ = device_->unmap(range_.begin, range_.bytes()) != CUDA_SUCCESS ||
          device_->map(range_.begin, from_) != CUDA_SUCCESS;
  return result;
}

CUresult Remap::finish() {
  CUresult result = device_->copies().wait(&copy_, &copy_us_);
  if (stages_old() && result != CUDA_SUCCESS) result = put_old_back(result);
  undo();
  if (stages_old()) return result;
  if (result == CUDA_SUCCESS) result = device_->unmap(range_.begin, range_.bytes());
  if (result != CUDA_SUCCESS) return result;
  result = device_->map(range_.begin, to_);
  if (result != CUDA_SUCCESS) lost_ = device_->map(range_.begin, from_) != CUDA_SUCCESS;
  return result;
}

}  // namespace spillway
