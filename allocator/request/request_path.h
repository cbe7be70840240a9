// The way of a request that the fast path did not serve. The block provider collects memory and tries again.
// Where there is still none, an OOM event goes to the handler, and the incident has an end.
//
// Thread-safety: any thread, without the heap's lock; one handler runs at a time on a device. Ownership:
// none. Errors: a status, and the failure where one is asked for.
#pragma once
#include "allocator/request/waiting_request.h"

namespace spillway {

class RequestPath {
 public:
  RequestPath(HeapState& heap, Growth& growth, BlockProvider& provider, const RoomMakers& makers)
      : heap_(heap), growth_(growth), provider_(provider), makers_(makers) {}

  // `injected`: its first try fails; `persistent`: every one.
  Status allocate(const Request& request, uint64_t size, bool injected, bool persistent, uint64_t* address,
                  FailurePtr* failure);

  // A request of pages alone, for a block that comes back.
  Miss pages_for(uint64_t bytes, StreamId stream) const;
  // The handler may make room for it. The caller releases it, whatever the outcome.
  Status get_pages(Miss& miss, FailurePtr* failure);
  Status driver_failure(const Miss& miss, FailurePtr* failure);
  void release(Miss& miss) { growth_.release(miss); }

 private:
  Status end(Miss& miss, Served served, FailurePtr* failure);
  Status ask_source(Miss& miss, FailurePtr* failure);
  // oom.cpp
  Status run_handler(Miss& miss, FailurePtr* failure);
  Status refuse_nested(const Miss& miss, FailurePtr* failure);
  LadderOutcome handle(WaitingRequest& waiting, const Miss& miss);
  LadderOutcome handle_with_kept_blocks(Miss& miss, const OomEvent& event);
  OomEvent make_event(const Miss& miss);
  uint64_t largest_extent(const Miss& miss);
  bool is_over_limit(const Miss& miss, uint64_t short_bytes);

  HeapState& heap_;
  Growth& growth_;
  BlockProvider& provider_;
  RoomMakers makers_;
  Mutex<LockOrder::kLadderOfDevice> ladder_mutex_;
};

}  // namespace spillway
