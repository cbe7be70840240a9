// A block's request while its handler runs: what strategies can do for it on the device's own memory.
//
// While a stream is captured nothing may be drained, unmapped or waited for. For the contract see
// pending_request.h.
#pragma once
#include <vector>

#include "allocator/request/block_provider.h"
#include "allocator/request/handle_divider.h"
#include "allocator/request/pending_request.h"
#include "allocator/streams/pending_frees.h"
#include "allocator/tiers/spiller.h"

namespace spillway {

// What makes room on a device.
struct RoomMakers {
  Reclaimer& reclaimer;
  PendingFrees& pending;
  Spiller& spiller;
  HandleDivider& divider;
};

class WaitingRequest final : public PendingRequest {
 public:
  WaitingRequest(HeapState& heap, BlockProvider& provider, const RoomMakers& makers, Miss& miss,
                 const OomEvent& what)
      : PendingRequest(what), heap_(heap), provider_(provider), makers_(makers), miss_(miss) {}

  bool retry() noexcept override;
  uint64_t reserved_bytes() const noexcept override { return miss_.pages.bytes(); }
  ReclaimEstimate estimate_reclaim(IdlePages what) const noexcept override;
  uint64_t reclaim(IdlePages what) noexcept override;
  uint64_t pending_bytes() const noexcept override;
  uint64_t wait_for_events() noexcept override;
  DivisionEstimate estimate_division() const noexcept override;
  uint64_t divide_handles() noexcept override;
  SpillEstimate estimate_spill(const SpillPlace& where) const noexcept override;
  SpillResult spill(const SpillPlace& where) noexcept override;

 private:
  // The place that needs the fewest pages, and the bytes of pages that are missing there.
  struct Shortfall {
    Placement placement;
    uint64_t bytes;
  };
  bool captures() const { return event.capture != CaptureState::kNone; }
  std::optional<Shortfall> shortfall() const SPILLWAY_REQUIRES(heap_.lock);
  // Of them, what idle pages elsewhere would not give either.
  uint64_t lacking(const Shortfall& missing) const SPILLWAY_REQUIRES(heap_.lock);
  void divide_for_spill(const SpillPlace& where);
  // What came of taking idle pages for it.
  enum class Idle : uint8_t { kTaken, kAfterDraining, kTooFew, kNotNeeded };
  Idle take_idle(std::vector<IdleRange>* idle);
  bool could_serve() const;

  HeapState& heap_;
  BlockProvider& provider_;
  RoomMakers makers_;
  Miss& miss_;
};

}  // namespace spillway
