#include "allocator/streams/drain.h"

#include <algorithm>

namespace spillway {

bool Drain::anything_captures() {
  if (heap_.shared.streams.captures_nothing()) return false;
  const SharedLocked asking(heap_.streams_mutex);
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

// The per-thread stream's handle means another stream on every thread: only the context knows them all.
CUevent Drain::record(const Arena& arena, StreamId* stream) {
  const SharedLocked asking(heap_.streams_mutex);
  bool may_ask = false;
  {
    const Locked guard(heap_.lock);
    *stream = arena.stream();
    may_ask = arena.may_ask && reinterpret_cast<CUstream>(*stream) != CU_STREAM_PER_THREAD;
  }
  CUresult result = CUDA_SUCCESS;
  if (!may_ask || heap_.device->capturing(*stream)) return nullptr;
  return heap_.device->record(*stream, &result);
}

CUresult Drain::stream_of(const Arena& arena, std::optional<StreamId>* drained) {
  StreamId stream{};
  CUevent event = record(arena, &stream);
  *drained = stream;
  CUresult result = CUDA_ERROR_NOT_READY;
  if (event != nullptr) {
    result = heap_.device->wait(event);
    heap_.device->put_back(event);
  }
  if (result == CUDA_SUCCESS) return result;
  drained->reset();
  return device();
}

}  // namespace spillway
