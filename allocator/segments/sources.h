// Pools whose segments come from a source of their own.
//
// Thread-safety: any thread, without a lock that a source needs. Ownership: the source is the allocator's
// from here on, which calls its `end` in any case, once. Units: bytes.
#pragma once
#include <cstdint>

#include "allocator/segments/segment_source.h"
#include "allocator/units.h"

namespace spillway {

class Allocator;
enum class Status : uint8_t;

// Before the pool's first request. kInvalid: that is past, the pool has a source, or it is no private one.
Status set_source(Allocator& allocator, DeviceId device, uint64_t pool,
                  const spillway_segment_source& source) noexcept;
// Idle segments of released pools, or of one, go back to their sources; their bytes. None while a handler
// runs on this thread.
uint64_t empty_sources(Allocator& allocator, DeviceId device, uint64_t pool) noexcept;

}  // namespace spillway
