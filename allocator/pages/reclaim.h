// What the built-in strategies can do with a device's memory. Used by strategies/, between a failed request
// and its retry; the allocator's own state stays behind it.
//
// Thread-safety: `reclaim` and `wait_for_events` are called on the thread whose request failed, inside the
// handler; the rest from anywhere. No CUDA call is made by the functions that offers use.
#pragma once
#include <cstdint>

#include "allocator/allocator.h"

namespace spillway {

struct ReclaimEstimate {
  uint64_t useful_bytes = 0;  // 0: it would not serve the request
  uint64_t pages = 0;         // to unmap and map again
  bool waits = false;         // a stream has to be waited for first
};

enum class IdlePages : uint8_t {
  kKeep,      // unmap and hold for the request: stitching
  kGiveBack,  // unmap and release to the driver, which has to create others
};

// Whether idle pages from elsewhere would let the request be served, and how many that takes.
ReclaimEstimate estimate_reclaim(Allocator& allocator, const OomEvent& event, IdlePages what) noexcept;
// Unmaps idle pages, as many as the request is short of, into the reservation, together with an address range
// for it. Returns the bytes.
uint64_t reclaim(Allocator& allocator, const OomEvent& event, Reservation& reservation,
                 IdlePages what) noexcept;

// Bytes of blocks that wait for events on other streams and could help this request.
uint64_t pending_bytes(Allocator& allocator, const OomEvent& event) noexcept;
// Waits for one event at a time, oldest first, until the request could be served or none is left. Returns the
// bytes that became free; `waited` counts the events.
uint64_t wait_for_events(Allocator& allocator, const OomEvent& event, uint64_t* waited) noexcept;

// Waits until no device that the allocator uses has work; false where that is not possible, as during a
// capture.
bool wait_until_all_idle(Allocator& allocator) noexcept;

// A record on the device's place in the order, if a trace is open.
void write_record(Allocator& allocator, DeviceId device, trace::Record record) noexcept;

}  // namespace spillway
