#include "allocator/streams/drain.h"

#include <algorithm>

namespace spillway {

bool Drain::anything_captures() {
  std::vector<StreamId> streams;
  {
    const Locked guard(heap_.lock);
    streams = heap_.tiling.streams();
  }
  return std::any_of(streams.begin(), streams.end(),
                     [&](StreamId it) { return heap_.device->capturing(it); });
}

CUresult Drain::device() {
  return anything_captures() ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : heap_.device->drain_all();
}

CUresult Drain::stream(StreamId stream) {
  const CUresult result = heap_.device->drain(stream);
  return result == CUDA_SUCCESS ? result : device();
}

}  // namespace spillway
