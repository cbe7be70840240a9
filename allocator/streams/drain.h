// Waiting until what is queued on a device, or on one stream, is over.
//
// Thread-safety: any thread, without the heap's lock, in the device's context. Errors: CUresult. A wait for
// the whole device would break a capture, whoever makes it: it is refused while any stream that blocks belong
// to is being captured.
#pragma once
#include <optional>

#include "allocator/heap_state.h"

namespace spillway {

class Drain {
 public:
  explicit Drain(HeapState& heap) : heap_(heap) {}
  CUresult device();
  // What is queued on the arena's stream, or on the device where the stream cannot be asked. `drained`:
  // which stream that was; nothing: all.
  CUresult stream_of(const Arena& arena, std::optional<StreamId>* drained);
  bool anything_captures();

 private:
  // An event on the arena's stream; null where none can be recorded, or the stream is being captured.
  CUevent record(const Arena& arena, StreamId* stream);

  HeapState& heap_;
};

}  // namespace spillway
