#include "allocator/tiers/steps/measure.h"

#include <cmath>

#include "allocator/accounting/journal.h"
#include "allocator/tiers/choice/choose.h"

namespace spillway {
namespace {

// The stream of the program's work: its own streams may be gone, and a real driver does not say so.
constexpr StreamId kMarked{};

// Of one pass over what of the block lies elsewhere.
double link_us_of(const HeapState& heap, Block* block) SPILLWAY_REQUIRES(heap.lock) {
  const SpilledBlocks::Spilled* there = heap.tiers.spilled.find(block);
  if (there == nullptr) return 0;
  double us = 0;
  const auto add = [&](const Piece& piece) SPILLWAY_REQUIRES(heap.lock) {
    if (piece.tier != Tier::kNvme)
      us += static_cast<double>(bytes_in(block, piece.range)) / bytes_per_us(heap, piece.tier);
  };
  for (const Piece& piece : there->pieces) add(piece);
  for (const uint64_t begin : there->common) add(heap.tiers.spilled.common().at(begin).piece);
  return us;
}

StepState state_of(const HeapState& heap) SPILLWAY_REQUIRES(heap.lock) {
  const TierState& tiers = heap.tiers;
  return {.order = heap.order,
          .link_us = tiers.link_us,
          .moved_us = tiers.moved_us,
          .moves = tiers.moves,
          .elsewhere = !tiers.spilled.empty()};
}

bool differs(double one, double other) {
  constexpr double kShare = 0.1;
  return std::abs(one - other) > kShare * std::max(one, other);
}

// Not each step: the file has room for less than a long run has of them.
bool is_news(ToldSlowdown& told, const StepTimes& steps) {
  if (steps.steps() == 0) return false;
  if (!differs(told.predicted, steps.predicted()) && !differs(told.measured, steps.measured())) return false;
  told = {steps.predicted(), steps.measured()};
  return true;
}

void tell(HeapState& heap, const ToldSlowdown& now, uint64_t bytes) {
  constexpr double kThousandths = 1000;
  trace::Record record;
  record.kind = trace::Kind::kSlowdown;
  record.address = static_cast<uint64_t>(std::lround(now.predicted * kThousandths));
  record.requested = static_cast<uint64_t>(std::lround(now.measured * kThousandths));
  record.bytes = bytes;
  journal::write(heap, record);
}

void add(HeapState& heap, const StepSample& step) {
  ToldSlowdown now;
  uint64_t bytes = 0;
  {
    const Locked guard(heap.lock);
    TierState& tiers = heap.tiers;
    tiers.steps.add(step);
    if (!is_news(tiers.told_slowdown, tiers.steps)) return;
    now = tiers.told_slowdown;
    bytes = tiers.spilled.bytes();
  }
  tell(heap, now, bytes);
}

}  // namespace

StepBoundary note_use(HeapState& heap, Block* block, const BlockAccess& access) {
  TierState& tiers = heap.tiers;
  const double more = tiers.access.touch(block, heap.order, access);
  if ((block->shared & kSpilled) != 0 && more != 0) tiers.link_us += more * link_us_of(heap, block);
  if (!heap.shared.times_steps || !tiers.access.is_learning() ||
      heap.tiling.arena_of(block).stream() != kMarked)
    return StepBoundary::kNone;
  return tiers.finder.used(block, AccessFrequency::born(block), heap.order, tiers.access.learning_since());
}

void time_step(HeapState& heap, StepBoundary boundary) {
  if (boundary == StepBoundary::kNone) return;
  const Device::Scope scope(*heap.device);
  if (heap.device->capturing(kMarked)) return;
  StepState state;
  {
    const Locked guard(heap.lock);
    state = state_of(heap);
  }
  heap.step_clock.mark(reinterpret_cast<CUstream>(kMarked), boundary, state);
  while (const auto step = heap.step_clock.next()) add(heap, *step);
}

void begin_step(HeapState& heap) {
  if (heap.forked() || !heap.shared.times_steps) return;
  StepBoundary boundary = StepBoundary::kNone;
  {
    const Locked guard(heap.lock);
    if (heap.tiers.access.is_learning()) boundary = heap.tiers.finder.begins();
  }
  time_step(heap, boundary);
}

}  // namespace spillway
