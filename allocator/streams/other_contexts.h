// Streams that blocks were recorded on, of the block's own device or of another one: each is asked, and gets
// its events, in its own context, since the driver records an event on streams of one context only.
//
// Thread-safety: any thread, but for `recorded` in the device's context. Ownership: borrows table and device.
// Errors: the driver's; a stream whose context it does not tell is taken for the device's own.
#pragma once
#include "allocator/pages/device.h"
#include "allocator/streams/recorded_stream.h"
#include "driver/table.h"

namespace spillway {

class OtherContexts {
 public:
  OtherContexts(const driver::Table& table, Device& device);

  // Called before any other context is made current: a default stream is that of the current one.
  RecordedStream recorded(StreamId stream) const;
  // Not of a stream that is gone.
  bool capturing(const RecordedStream& on);
  // Behind what is queued on it; null where none could be recorded, as where it is gone.
  CUevent record(const RecordedStream& on);
  void put_back(CUevent event, const RecordedStream& on);
  // For what is queued on a stream of another context, or on all of that where the stream is gone.
  CUresult wait(const RecordedStream& on);

 private:
  class Scope;

  const driver::Table& table_;
  Device& device_;
  bool alone_ = true;  // the process has no other device
};

}  // namespace spillway
