#include "allocator/tiers/exchanger.h"

#include "allocator/tiers/choice/choose.h"

namespace spillway {

uint64_t Exchanger::exchangeable_bytes(const SpillPlace& where) {
  const Locked guard(heap_.lock);
  return heap_.tiers.spilled.empty() ? 0 : bytes_of(choose_exchange(heap_, where).in);
}

uint64_t Exchanger::exchange(const SpillPlace& where) {
  Exchange chosen;
  {
    const Locked guard(heap_.lock);
    heap_.tiling.all_is_drained(heap_.order);
    chosen = choose_exchange(heap_, where);
    heap_.tiers.spilled.begin_moves(chosen.in);
    heap_.tiers.spilled.begin_moves(chosen.out);
  }
  if (chosen.in.empty()) return 0;
  PageReservation pages;
  spiller_.move_out(std::move(chosen.out), where, &pages);
  const uint64_t bytes = unspiller_.move_in(chosen.in, &pages);
  const Locked guard(heap_.lock);
  heap_.pages.put_back(&pages);
  heap_.tiers.steps.blocks_changed();
  return bytes;
}

}  // namespace spillway
