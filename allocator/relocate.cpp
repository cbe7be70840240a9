// The pages behind live blocks' addresses change places: many moves at once, measured and recorded.
#include <algorithm>
#include <utility>

#include "allocator/exchange.h"
#include "allocator/heap.h"

namespace spillway {

std::vector<driver::Page> DeviceHeap::pages_in_range(const Block* block, AddressRange range) {
  const std::lock_guard guard(lock_);
  std::vector<driver::Page> pages;
  for (uint64_t at = range.begin; at < range.end; at += page_bytes_)
    pages.push_back({arenas_[block->arena]->page(at), page_bytes_});
  return pages;
}

// Copies run beside the driver's other work: each is queued as soon as its memory is there, and the pages of
// those that are over change places while later ones still run.
void DeviceHeap::exchange(std::vector<Move>& moves, const std::function<bool(Move&)>& provide) {
  retry_left_over();
  std::vector<std::pair<Move*, Exchange>> begun;
  for (Move& move : moves) {
    if (!provide(move)) continue;
    Exchange exchange(*device_, move.range, move.from, move.to);
    if (const CUresult result = exchange.begin(); result != CUDA_SUCCESS) {
      exchange.undo();
      leave_over(exchange);
      record_move(move, result);
      break;
    }
    begun.emplace_back(&move, std::move(exchange));
  }
  std::array<uint64_t, kTiers> bytes{};
  std::array<double, kTiers> us{};
  for (auto& [move, exchange] : begun) {
    const CUresult result = exchange.finish();
    move->done = result == CUDA_SUCCESS;
    record_move(*move, result);
    if (exchange.lost()) record_loss(*move, result);
    leave_over(exchange);
    const auto there = static_cast<size_t>(std::max(move->tier, move->was));
    const bool over_one_link = move->tier == Tier::kDevice || move->was == Tier::kDevice;
    if (exchange.copy_us() <= 0 || !over_one_link) continue;
    bytes[there] += move->range.bytes();
    us[there] += exchange.copy_us();
  }
  for (size_t tier = 0; tier < kTiers; ++tier) measure_copies(static_cast<Tier>(tier), bytes[tier], us[tier]);
}

// Staging ranges that the driver did not take back at once.
void DeviceHeap::leave_over(const Exchange& exchange) {
  if (exchange.left_over().range.bytes() == 0) return;
  const std::lock_guard guard(left_over_mutex_);
  left_over_.push_back(exchange.left_over());
}

void DeviceHeap::retry_left_over() {
  const std::lock_guard guard(left_over_mutex_);
  std::erase_if(left_over_, [&](Staging& left) { return left.drop(*device_); });
}

void DeviceHeap::measure_copies(Tier tier, uint64_t bytes, double us) {
  const std::lock_guard guard(lock_);
  pace_.measured(tier, bytes, us);
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
