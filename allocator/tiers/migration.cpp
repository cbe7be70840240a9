#include "allocator/tiers/migration.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "allocator/accounting/journal.h"

namespace spillway {

std::vector<driver::Page> Migration::pages_in(const Block* block, AddressRange range) {
  const Locked guard(heap_.lock);
  return heap_.tiling.arena_of(block).handles_in(range);
}

// Moves of neighbours, which are one exchange: the driver takes about as long for one page as for many.
struct Migration::Run {
  // Also in one segment: CUDA promises nothing of a range that crosses from one reservation into the next.
  bool continues(const Move& move, uint64_t most_bytes) const {
    const Move& last = *moves.back();
    return last.range.end == move.range.begin && last.block->arena == move.block->arena &&
           last.block->segment == move.block->segment && last.tier == move.tier && last.was == move.was &&
           bytes() + move.range.bytes() <= most_bytes;
  }
  // The place in the chooser's order of the one that it put first.
  const Move* first() const { return *std::ranges::min_element(moves); }
  uint64_t bytes() const { return moves.back()->range.end - moves.front()->range.begin; }
  // One link's time is known only where the device is at one end.
  bool over_one_link() const {
    return moves.front()->tier == Tier::kDevice || moves.front()->was == Tier::kDevice;
  }
  size_t other_tier() const { return static_cast<size_t>(std::max(moves.front()->tier, moves.front()->was)); }

  std::vector<Move*> moves;
};

struct Migration::Begun {
  Run run;
  Remap remap;
};

// Nothing: the driver refused.
std::optional<Migration::Begun> Migration::begin_run(Run run) {
  std::vector<driver::Page> from, to;
  for (const Move* move : run.moves) {
    from.insert(from.end(), move->from.begin(), move->from.end());
    to.insert(to.end(), move->to.begin(), move->to.end());
  }
  const AddressRange range{run.moves.front()->range.begin, run.moves.back()->range.end};
  Remap remap(*heap_.device, range, std::move(from), std::move(to));
  const CUresult result = remap.begin();
  if (result == CUDA_SUCCESS) return Begun{std::move(run), std::move(remap)};
  remap.undo();
  leave_over(remap);
  for (const Move* move : run.moves) record(*move, result);
  return std::nullopt;
}

// Neighbours beside each other, as many as one run takes; for the rest in the chooser's order, because memory
// may end half-way.
std::vector<Move*> Migration::beside_neighbours(std::vector<Move>& moves, uint64_t most_bytes) {
  std::vector<Move*> ordered;
  ordered.reserve(moves.size());
  for (Move& move : moves) ordered.push_back(&move);
  std::ranges::sort(ordered, {}, [](const Move* move) { return move->range.begin; });
  std::vector<Run> groups;
  for (Move* move : ordered) {
    if (groups.empty() || !groups.back().continues(*move, most_bytes)) groups.emplace_back();
    groups.back().moves.push_back(move);
  }
  std::ranges::sort(groups, {}, &Run::first);
  ordered.clear();
  for (const Run& group : groups) ordered.insert(ordered.end(), group.moves.begin(), group.moves.end());
  return ordered;
}

// Each is begun as soon as its memory is there, and the first are short, so that copies begin soon.
std::vector<Migration::Begun> Migration::begin_runs(std::vector<Move>& moves, const Provide& provide) {
  constexpr uint64_t kFirstBytes = 2 << 20, kMostBytes = 16 << 20;
  std::vector<Begun> runs;
  Run next;
  uint64_t most_bytes = kFirstBytes;
  const auto begin = [&] {
    if (next.moves.empty()) return true;
    std::optional<Begun> begun = begin_run(std::exchange(next, {}));
    if (!begun) return false;
    runs.push_back(*std::move(begun));
    most_bytes = std::min(2 * most_bytes, kMostBytes);
    return true;
  };
  for (Move* move : beside_neighbours(moves, kMostBytes)) {
    if (!provide(*move)) continue;
    if (!next.moves.empty() && !next.continues(*move, most_bytes) && !begin()) return runs;
    next.moves.push_back(move);
    if (next.bytes() >= most_bytes && !begin()) return runs;
  }
  begin();
  return runs;
}

void Migration::finish_run(Begun& begun) {
  const CUresult result = begun.remap.finish();
  for (Move* move : begun.run.moves) {
    move->done = result == CUDA_SUCCESS;
    record(*move, result);
    if (begun.remap.lost())
      journal::driver_failure(heap_, move->range.bytes(), result, "the way back of a failed spill");
  }
  leave_over(begun.remap);
}

// The pages of runs that are over change places while later ones are still copied.
void Migration::run(std::vector<Move>& moves, const Provide& provide) {
  retry_left_over();
  std::array<uint64_t, kTiers> bytes{};
  std::array<double, kTiers> us{};
  for (Begun& begun : begin_runs(moves, provide)) {
    finish_run(begun);
    const Run& run = begun.run;
    if (begun.remap.copy_us() <= 0 || !run.over_one_link()) continue;
    bytes[run.other_tier()] += run.bytes();
    us[run.other_tier()] += begun.remap.copy_us();
  }
  for (size_t tier = 0; tier < kTiers; ++tier) measured(static_cast<Tier>(tier), bytes[tier], us[tier]);
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
    if (ended.insert(move.block).second) end(move.block);
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
