#include "allocator/pages/copy_stream.h"

#include <utility>

namespace spillway {

// Made when first needed. Never waits for the legacy stream.
CUresult CopyStream::stream(CUstream* out) {
  const Locked guard(mutex_);
  const CUresult result =
      stream_ == nullptr ? table_.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING) : CUDA_SUCCESS;
  *out = stream_;
  return result;
}

CUresult CopyStream::copy(uint64_t to, uint64_t from, uint64_t bytes, Copy* copy) {
  CUstream stream = nullptr;
  if (const CUresult result = this->stream(&stream); result != CUDA_SUCCESS) return result;
  copy->begun = events_.record(stream);
  const CUresult result = table_.cuMemcpyAsync(to, from, bytes, stream);
  if (result == CUDA_SUCCESS)
    copy->over = events_.record(stream);
  else
    events_.put_back(std::exchange(copy->begun, nullptr));
  return result;
}

// Without an event, or where it cannot be waited for, all copies are.
CUresult CopyStream::wait(Copy* copy, double* us) {
  const Copy ended = std::exchange(*copy, {});
  CUresult result = ended.over == nullptr ? CUDA_ERROR_NOT_READY : table_.cuEventSynchronize(ended.over);
  const bool timed = result == CUDA_SUCCESS && ended.begun != nullptr;
  const float ms = timed ? events_.ms_between(ended.begun, ended.over) : 0;
  *us = ms > 0 ? static_cast<double>(ms) * 1000 : 0;
  events_.put_back(ended.begun);
  events_.put_back(ended.over);
  return result == CUDA_SUCCESS ? result : wait_for_all();
}

CUresult CopyStream::wait_for_all() {
  CUstream stream = nullptr;
  const CUresult result = this->stream(&stream);
  return result == CUDA_SUCCESS ? table_.cuStreamSynchronize(stream) : result;
}

bool CopyStream::record_clock(CUevent* event, CUstream stream) {
  if (*event == nullptr && table_.cuEventCreate(event, CU_EVENT_DEFAULT) != CUDA_SUCCESS) return false;
  if (table_.cuEventRecord(*event, stream) == CUDA_SUCCESS) return true;
  table_.cuEventDestroy(std::exchange(*event, nullptr));
  return false;
}

uint64_t CopyStream::time_us() {
  CUstream stream = nullptr;
  const bool usable = this->stream(&stream) == CUDA_SUCCESS;
  const Locked guard(mutex_);
  float ms = 0;
  if (!usable || (clock_start_ == nullptr && !record_clock(&clock_start_, stream)) ||
      !record_clock(&clock_now_, stream) || table_.cuEventSynchronize(clock_now_) != CUDA_SUCCESS ||
      table_.cuEventElapsedTime(&ms, clock_start_, clock_now_) != CUDA_SUCCESS)
    return 0;
  return static_cast<uint64_t>(static_cast<double>(ms) * 1000) + 1;
}

void CopyStream::end() {
  events_.end();
  const Locked guard(mutex_);
  for (const CUevent event : {clock_start_, clock_now_})
    if (event != nullptr) table_.cuEventDestroy(event);
  if (stream_ != nullptr) table_.cuStreamDestroy(stream_);
}

}  // namespace spillway
