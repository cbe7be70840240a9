// The strategies' records in the trace.
//
// Thread-safety: any thread, without a lock of the allocator's. Errors: none.
#pragma once
#include "allocator/units.h"
#include "trace/record.h"

namespace spillway {

class Allocator;

// A record on the device's place in the order, if a trace is open.
void write_record(Allocator& allocator, DeviceId device, trace::Record record) noexcept;

}  // namespace spillway
