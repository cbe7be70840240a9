// What may be held of one device: by the limit that was set for it, by the process's budget, and by what the
// card has beyond the bytes that requests must leave to others. Whoever takes memory draws first and asks the
// driver then, so that two never both get the last bytes.
//
// Thread-safety: none but that of the budget, which other takers draw from at the same time; the heap's lock
// guards it. Ownership: borrows the budget, which may be set later, and the count of guests. Errors: `draw`
// is false where there is no room, and nothing changes. Units: bytes.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "allocator/accounting/process_totals.h"

namespace spillway {

class Quota {
 public:
  // `guests`: what other devices' blocks take of this one.
  Quota(size_t device, spillway_budget* const& budget, const std::atomic<uint64_t>& guests);

  uint64_t held() const { return held_; }
  uint64_t limit() const { return limit_; }  // UINT64_MAX: none
  void set_limit(uint64_t bytes) { limit_ = bytes == 0 ? UINT64_MAX : bytes; }

  // What the limit leaves; what it and the budget leave, without the reserve and with it; and of that what
  // the card has beside the reserve.
  uint64_t room_below_limit() const;
  uint64_t room_with_reserve() const;
  uint64_t room_in_limit() const;
  uint64_t room() const;
  bool draw(uint64_t bytes);
  void give_back(uint64_t bytes);
  // For a pool's own source, which may have had the memory long ago: the limit holds. Where the source asks
  // the driver, the budget and the reserve are met there.
  bool draw_for_source(uint64_t bytes);
  void give_back_of_source(uint64_t bytes);

  // What requests must leave to others; where that is something, the card is asked before each of them.
  uint64_t reserve() const;
  // UINT64_MAX: the driver did not say. `left_bytes`: to be left of the card in any case.
  void see_free(uint64_t free_bytes, uint64_t left_bytes = 0);
  uint64_t beside_reserve() const { return beside_reserve_; }  // UINT64_MAX: not bounded

  // What calls of the driver by the program have taken since this was made, beside what is held.
  uint64_t native_since_start() const;

 private:
  uint64_t native() const;
  uint64_t room_beside(uint64_t reserve) const;

  const size_t device_;
  spillway_budget* const& budget_;
  const std::atomic<uint64_t>& guests_;
  uint64_t held_ = 0, of_sources_ = 0;
  uint64_t limit_ = UINT64_MAX;
  uint64_t beside_reserve_ = UINT64_MAX;  // of the card, as last seen, less what was drawn since
  const uint64_t native_at_start_;
};

}  // namespace spillway
