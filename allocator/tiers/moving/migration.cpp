#include "allocator/tiers/moving/migration.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <set>
#include <utility>

#include "allocator/accounting/journal.h"
#include "allocator/tiers/host/to_host.h"

namespace spillway {

std::vector<driver::Page> Migration::pages_in(const Block* block, AddressRange range) {
  const Locked guard(heap_.lock);
  return handles_in(heap_.tiling.arena_of(block), range);
}

namespace {

constexpr uint64_t kMostBytes = 16 << 20;  // that are ordered as one

bool goes_to_host(const Move& move) {
  return move.tier == Tier::kHost;
}

bool comes_from_host(const Move& move) {
  return move.was == Tier::kHost;
}

// One link's time is known only where the device is at one end.
bool over_one_link(const Move& move) {
  return move.tier == Tier::kDevice || move.was == Tier::kDevice;
}

size_t other_tier(const Move& move) {
  return static_cast<size_t>(std::max(move.tier, move.was));
}

std::vector<Move*> those(const std::vector<Move*>& moves, bool (*are)(const Move&), bool wanted = true) {
  std::vector<Move*> found;
  std::ranges::copy_if(moves, std::back_inserter(found),
                       [&](const Move* move) { return are(*move) == wanted; });
  return found;
}

}  // namespace

struct Migration::Begun {
  Neighbours run;
  Remap remap;
};

void Migration::record_run(const Neighbours& run, const Remap& remap, CUresult result) {
  for (const Move* move : run.moves) {
    record(*move, result);
    if (remap.lost())
      journal::driver_failure(heap_, move->range.bytes(), result, "the way back of a failed spill");
  }
}

// Nothing: the driver refused.
std::optional<Migration::Begun> Migration::begin_run(Neighbours run) {
  std::vector<driver::Page> from, to;
  for (const Move* move : run.moves) {
    from.insert(from.end(), move->from.begin(), move->from.end());
    to.insert(to.end(), move->to.begin(), move->to.end());
  }
  Remap remap(*heap_.device, run.range(), std::move(from), std::move(to));
  const CUresult result = remap.begin();
  if (result == CUDA_SUCCESS) return Begun{std::move(run), std::move(remap)};
  remap.undo();
  leave_over(remap);
  record_run(run, remap, result);
  return std::nullopt;
}

// Each is begun as soon as its memory is there, and the first are short, so that copies begin soon.
std::vector<Migration::Begun> Migration::begin_runs(const std::vector<Move*>& moves, const Provide& provide) {
  constexpr uint64_t kFirstBytes = 2 << 20, kLastBytes = 16 << 20;
  std::vector<Begun> runs;
  Neighbours next;
  uint64_t most_bytes = kFirstBytes;
  const auto begin = [&] {
    if (next.moves.empty()) return true;
    std::optional<Begun> begun = begin_run(std::exchange(next, {}));
    if (!begun) return false;
    runs.push_back(*std::move(begun));
    most_bytes = std::min(2 * most_bytes, kLastBytes);
    return true;
  };
  for (Move* move : moves) {
    if (!provide(*move)) continue;
    if (!next.moves.empty() && !next.continues(*move, most_bytes) && !begin()) return runs;
    next.moves.push_back(move);
    if (next.range().bytes() >= most_bytes && !begin()) return runs;
  }
  begin();
  return runs;
}

void Migration::finish_run(Begun& begun) {
  const CUresult result = begun.remap.finish();
  for (Move* move : begun.run.moves) move->done = result == CUDA_SUCCESS;
  record_run(begun.run, begun.remap, result);
  leave_over(begun.remap);
}

// The pages of runs that are over change places while later ones are still copied.
void Migration::remap(const std::vector<Move*>& moves, const Provide& provide) {
  retry_left_over();
  const uint64_t begun_us = heap_.device->copies().time_us();
  std::array<uint64_t, kTiers> bytes{};
  std::array<double, kTiers> us{};
  for (Begun& begun : begin_runs(moves, provide)) {
    finish_run(begun);
    const Move& first = *begun.run.moves.front();
    if (begun.remap.copy_us() <= 0 || !over_one_link(first)) continue;
    bytes[other_tier(first)] += begun.run.range().bytes();
    us[other_tier(first)] += begun.remap.copy_us();
  }
  for (size_t tier = 0; tier < kTiers; ++tier) measured(static_cast<Tier>(tier), bytes[tier], us[tier]);
  const uint64_t ended_us = heap_.device->copies().time_us();
  const Locked guard(heap_.lock);
  ++heap_.tiers.moves;
  if (begun_us != 0 && ended_us > begun_us) heap_.tiers.moved_us += static_cast<double>(ended_us - begun_us);
}

void Migration::move_to_host(const std::vector<Move*>& moves, const Provide& provide) {
  ToHost host(heap_, host_, [this](const Move& move, CUresult result) { record(move, result); });
  for (Move* move : moves)
    if (provide(*move) && !host.add(*move)) break;
  host.finish();
  if (!moves.empty() && over_one_link(*moves.front()))
    measured(Tier::kHost, host.copied_bytes(), host.copies_us());
}

void Migration::move_from_host(const std::vector<Move*>& moves, const PageSource& pages) {
  FromHost host(heap_, host_, pages, [this](const Move& move, CUresult result) { record(move, result); });
  for (Move* move : moves)
    if (!host.add(*move)) break;
  host.finish();
  measured(Tier::kHost, host.copied_bytes(), host.copies_us());
}

std::vector<Move*> Migration::movable(std::vector<Move>& moves) const {
  std::vector<Move*> ordered = beside_neighbours(moves, kMostBytes);
  const Pins pins = heap_.shared.pinned();
  std::erase_if(ordered,
                [&](const Move* move) { return pins.cover(move->range.begin, move->range.bytes()); });
  return ordered;
}

void Migration::move_out(std::vector<Move>& moves, const Provide& provide) {
  const std::vector<Move*> ordered = movable(moves);
  move_to_host(those(ordered, goes_to_host), provide);
  remap(those(ordered, goes_to_host, false), provide);
}

void Migration::move_in(std::vector<Move>& moves, const PageSource& pages) {
  const std::vector<Move*> ordered = movable(moves);
  move_from_host(those(ordered, comes_from_host), pages);
  remap(those(ordered, comes_from_host, false),
        [&](Move& move) { return pages(move.range.bytes(), &move.to); });
}

void Migration::end(Block* block) {
  bool freed = false;
  {
    const Locked guard(heap_.lock);
    freed = heap_.tiers.spilled.end_move(block);
    if (heap_.tiers.spilled.empty()) heap_.clear_slow(kSlowSpilled);
  }
  ended_.fetch_add(1);
  ended_.notify_all();
  if (freed) releaser_.release_claimed(block);
}

// Several pieces of a block may have moved: its move ends once.
void Migration::end(const std::vector<Move>& moves) {
  std::set<Block*> ended;
  for (const Move& move : moves)
    for (Block* block : blocks_of(move))
      if (ended.insert(block).second) end(block);
}

void Migration::leave_over(const Remap& remap) {
  if (remap.left_over().range.bytes() == 0) return;
  const Locked guard(left_over_mutex_);
  left_over_.push_back(remap.left_over());
}

void Migration::retry_left_over() {
  const Locked guard(left_over_mutex_);
  std::erase_if(left_over_, [&](Staging& left) { return left.drop(*heap_.device); });
}

void Migration::measured(Tier tier, uint64_t bytes, double us) {
  const Locked guard(heap_.lock);
  heap_.tiers.bandwidth.measured(tier, bytes, us);
}

void Migration::record(const Move& move, CUresult result) {
  trace::Record record;
  record.kind = trace::Kind::kMove;
  record.address = move.range.begin;
  record.bytes = move.range.bytes();
  record.requested = static_cast<uint64_t>(move.tier);
  record.value = result;
  if (move.tier == Tier::kPeer) record.detail = static_cast<uint64_t>(move.peer);
  journal::write(heap_, record);
}

}  // namespace spillway
