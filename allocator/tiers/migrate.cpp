// The pages behind live blocks' addresses change places: many moves at once, measured and recorded.
#include <algorithm>
#include <utility>

#include "allocator/heap.h"
#include "allocator/pages/remap.h"

namespace spillway {

std::vector<driver::Page> DeviceHeap::pages_in_range(const Block* block, AddressRange range) {
  const Locked guard(lock_);
  std::vector<driver::Page> pages;
  for (uint64_t at = range.begin; at < range.end; at += page_bytes_)
    pages.push_back({arenas_[block->arena]->page(at), page_bytes_});
  return pages;
}

// Moves of neighbours, which are one exchange: the driver takes about as long for one page as for many.
struct DeviceHeap::Run {
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

struct DeviceHeap::Begun {
  Run run;
  Remap exchange;
};

// Nothing: the driver refused.
std::optional<DeviceHeap::Begun> DeviceHeap::begin_run(Run run) {
  std::vector<driver::Page> from, to;
  for (const Move* move : run.moves) {
    from.insert(from.end(), move->from.begin(), move->from.end());
    to.insert(to.end(), move->to.begin(), move->to.end());
  }
  const AddressRange range{run.moves.front()->range.begin, run.moves.back()->range.end};
  Remap exchange(*device_, range, std::move(from), std::move(to));
  const CUresult result = exchange.begin();
  if (result == CUDA_SUCCESS) return Begun{std::move(run), std::move(exchange)};
  exchange.undo();
  leave_over(exchange);
  for (const Move* move : run.moves) record_move(*move, result);
  return std::nullopt;
}

// Neighbours beside each other, as many as one run takes; for the rest in the chooser's order, because memory
// may end half-way.
std::vector<DeviceHeap::Move*> DeviceHeap::beside_neighbours(std::vector<Move>& moves, uint64_t most_bytes) {
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
std::vector<DeviceHeap::Begun> DeviceHeap::begin_runs(std::vector<Move>& moves,
                                                      const std::function<bool(Move&)>& provide) {
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

void DeviceHeap::finish_run(Begun& begun) {
  const CUresult result = begun.exchange.finish();
  for (Move* move : begun.run.moves) {
    move->done = result == CUDA_SUCCESS;
    record_move(*move, result);
    if (begun.exchange.lost()) record_loss(*move, result);
  }
  leave_over(begun.exchange);
}

// Copies run beside the driver's other work, and the pages of those that are over change places while later
// ones still run.
void DeviceHeap::remap(std::vector<Move>& moves, const std::function<bool(Move&)>& provide) {
  retry_left_over();
  std::array<uint64_t, kTiers> bytes{};
  std::array<double, kTiers> us{};
  for (Begun& begun : begin_runs(moves, provide)) {
    finish_run(begun);
    const Run& run = begun.run;
    if (begun.exchange.copy_us() <= 0 || !run.over_one_link()) continue;
    bytes[run.other_tier()] += run.bytes();
    us[run.other_tier()] += begun.exchange.copy_us();
  }
  for (size_t tier = 0; tier < kTiers; ++tier) measure_copies(static_cast<Tier>(tier), bytes[tier], us[tier]);
}

// Staging ranges that the driver did not take back at once.
void DeviceHeap::leave_over(const Remap& exchange) {
  if (exchange.left_over().range.bytes() == 0) return;
  const Locked guard(left_over_mutex_);
  left_over_.push_back(exchange.left_over());
}

void DeviceHeap::retry_left_over() {
  const Locked guard(left_over_mutex_);
  std::erase_if(left_over_, [&](Staging& left) { return left.drop(*device_); });
}

void DeviceHeap::measure_copies(Tier tier, uint64_t bytes, double us) {
  const Locked guard(lock_);
  bandwidth_.measured(tier, bytes, us);
}

void DeviceHeap::record_move(const Move& move, CUresult result) {
  trace::Record record;
  record.kind = trace::Kind::kMove;
  record.address = move.range.begin;
  record.bytes = move.range.bytes();
  record.requested = static_cast<uint64_t>(move.tier);
  record.value = result;
  if (move.tier == Tier::kPeer) record.detail = static_cast<uint64_t>(move.peer);
  write(record);
}

void DeviceHeap::record_loss(const Move& move, CUresult result) {
  trace::Record record;
  record.kind = trace::Kind::kDriverFailure;
  record.bytes = move.range.bytes();
  record.value = result;
  if (trace::Trace* trace = allocator_.trace())
    record.detail = trace->intern("the way back of a failed spill");
  write(record);
}

}  // namespace spillway
