// A stream that a block was recorded on: of the block's own device, or of another one, whose events the
// driver records in that one's context only.
//
// Thread-safety: a value. Errors: none.
#pragma once
#include <cuda.h>

#include <compare>
#include <vector>

#include "allocator/tiling/stream_knowledge.h"
#include "allocator/units.h"

namespace spillway {

struct RecordedStream {
  StreamId stream{};
  CUcontext context = nullptr;  // null: the primary one of the block's device

  auto operator<=>(const RecordedStream&) const = default;
};

// The stream is about to be destroyed; its context stays.
inline void end_stream(std::vector<RecordedStream>& streams, StreamId stream) {
  for (RecordedStream& on : streams)
    if (on.stream == stream) on.stream = kStreamGone;
}

}  // namespace spillway
