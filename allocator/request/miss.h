// A request on its way after no free block fitted it.
//
// Thread-safety: the thread whose request it is. Ownership: of what is reserved for it, until it is released.
// Units: bytes.
#pragma once
#include <cuda.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "allocator/heap_state.h"
#include "allocator/pages/supply/page_reservation.h"

namespace spillway {

// An address range that is taken out of an arena for the request, as a busy block.
struct Place {
  Arena* arena = nullptr;
  Block* claim = nullptr;  // null: there is none
  Placement placement;
  std::vector<AddressRange> voids{};  // parts of it without pages
};

enum class Served : uint8_t { kYes, kShort, kFailed };

struct Miss {
  Request request;
  uint64_t size = 0;
  PageReservation pages{};
  bool pages_only = false;  // a block comes back: it has its place
  bool injected = false, persistent = false;
  Place place{};
  bool refused = false;  // the driver had no page left
  unsigned tries = 0;
  bool served = false;
  uint64_t address = 0;
  Arena* arena = nullptr;  // where its place will be, while its handler runs
  CUresult error = CUDA_SUCCESS;
  const char* call = "";

  // A pool's own source is to be asked for a segment of so many bytes, which are set aside; 0: it is not.
  uint64_t segment_bytes = 0;
  PoolSettings::Source source{};  // null: it has none, or was not looked for
  uint64_t usual_bytes = 0;       // that the source wants to be asked for
  bool needs_more = false;        // the source's segment is not aligned as blocks are, and too small then

  bool waits() const { return arena != nullptr; }
  bool ended() const { return served || error != CUDA_SUCCESS || segment_bytes != 0; }
};

// What is left for it of the limit, of the budget, and of what the card has; see Quota.
uint64_t room_for(const HeapState& heap, const Miss& miss) SPILLWAY_REQUIRES(heap.lock);
// Pages that it has or may have, unless the driver has just refused to create any.
uint64_t obtainable(const HeapState& heap, const Miss& miss) SPILLWAY_REQUIRES(heap.lock);
Arena& arena_of(HeapState& heap, const Miss& miss) SPILLWAY_REQUIRES(heap.lock);
// Whether an arena's free blocks serve it though they are another pool's.
bool lends_to(const HeapState& heap, const Arena& arena, const Miss& miss) SPILLWAY_REQUIRES(heap.lock);

// Of a request whose handler runs: whether a free block fits it, and where it could go with `has` bytes of
// pages and `idle` ones elsewhere.
bool fits(const HeapState& heap, const Miss& miss) SPILLWAY_REQUIRES(heap.lock);
std::optional<Placement> place_for(const HeapState& heap, const Miss& miss, uint64_t has, uint64_t idle)
    SPILLWAY_REQUIRES(heap.lock);
void take_place(const HeapState& heap, Miss& miss, const Placement& placement) SPILLWAY_REQUIRES(heap.lock);
// Bytes that an allocation for it, of whole pages, still lacks, of the limit or of what the driver has.
uint64_t short_of_single(const HeapState& heap, const Miss& miss) SPILLWAY_REQUIRES(heap.lock);

}  // namespace spillway
