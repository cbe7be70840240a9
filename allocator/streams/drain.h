// Waiting until what is queued on a device, or on one stream, is over.
//
// Thread-safety: any thread, without the heap's lock, in the device's context. Errors: CUresult. A wait for
// the whole device would break a capture, whoever makes it: it is refused while any stream that blocks belong
// to is being captured.
#pragma once
#include "allocator/heap_state.h"

namespace spillway {

class Drain {
 public:
  explicit Drain(HeapState& heap) : heap_(heap) {}
  CUresult device();
  CUresult stream(StreamId stream);

 private:
  bool anything_captures();

  HeapState& heap_;
};

}  // namespace spillway
