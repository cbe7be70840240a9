// A request that could not be served, and waits while strategies make room for it.
//
// What is reclaimed or spilled for it goes into its reservation, where no other thread can take it, until
// `retry` uses it. A call of the driver that another library made waits in the same way and has no
// reservation: what is freed for it goes to the driver.
//
// Thread-safety: the thread whose request failed; a strategy keeps no reference to it. No lock of the
// allocator's is held. Ownership: whoever asked. Errors: 0 bytes where nothing could be done, which is also
// the answer of whoever has no such memory. The estimates make no CUDA call. Units: bytes.
#pragma once
#include <cstdint>

#include "allocator/pages/idle_pages.h"
#include "allocator/request/oom_event.h"
#include "allocator/tiers/tiers.h"

namespace spillway {

class PendingRequest {
 public:
  explicit PendingRequest(OomEvent what) : event(what) {}
  virtual ~PendingRequest() = default;
  PendingRequest(const PendingRequest&) = delete;
  PendingRequest& operator=(const PendingRequest&) = delete;

  // Tries to serve it with what is reserved and what is free by now. True: it waits no longer, because it is
  // served or ended by an error that more memory does not mend.
  virtual bool retry() noexcept = 0;
  virtual uint64_t reserved_bytes() const noexcept { return 0; }

  // Whether idle pages from elsewhere would serve it, and how many that takes.
  virtual ReclaimEstimate estimate_reclaim(IdlePages) const noexcept { return {}; }
  // Unmaps idle pages, as many as it is short of, and reserves them with an address range for it.
  virtual uint64_t reclaim(IdlePages) noexcept { return 0; }

  // Of blocks that wait for events of other streams and could help.
  virtual uint64_t pending_bytes() const noexcept { return 0; }
  // Waits for one event at a time, oldest first, until it could be served or none is left. Returns the bytes
  // that became free.
  virtual uint64_t wait_for_events() noexcept { return 0; }

  // Of handles that are partly in use: whether their idle pages would help.
  virtual DivisionEstimate estimate_division() const noexcept { return {}; }
  // Divides them, so that these pages are idle like others. Needs a closed gate and idle devices. Returns
  // their bytes.
  virtual uint64_t divide_handles() noexcept { return 0; }

  virtual SpillEstimate estimate_spill(const SpillPlace&) const noexcept { return {}; }
  // Copies the coldest blocks' pages away, as many bytes as it is short of and some more, and reserves the
  // pages with an address range for it. Needs a closed gate and idle devices.
  virtual SpillResult spill(const SpillPlace&) noexcept { return {}; }

  OomEvent event;  // the ladder adds `allowed` and `phase` before a strategy sees it
};

}  // namespace spillway
