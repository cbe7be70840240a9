// Blocks that were freed while other streams may still use them: an event on each of these streams, in the
// order of the frees; the block becomes a hole when all have passed.
#include <algorithm>

#include "allocator/heap.h"

namespace spillway {
namespace {

// The handle of the threads' own default streams means another one on every thread; an event of the default
// stream passes behind what all of them have queued.
StreamId of_all_threads(StreamId stream) {
  return reinterpret_cast<CUstream>(stream) == CU_STREAM_PER_THREAD ? StreamId{} : stream;
}

}  // namespace

void DeviceHeap::queue_pending(Block* block, std::vector<StreamId> streams) {
  const Device::Scope scope(*device_);
  std::ranges::transform(streams, streams.begin(), of_all_threads);
  bool done = false;
  {
    const Locked guard(events_mutex_);
    const bool capturing = std::any_of(streams.begin(), streams.end(),
                                       [&](StreamId stream) { return device_->capturing(stream); });
    if (capturing)  // an event recorded now would become part of the graph
      deferred_.push_back({block, std::move(streams)});
    else
      done = record_uses(block, streams);
    if (!done) set_slow(kSlowPending);
  }
  if (done) complete(block);
}

bool DeviceHeap::record_uses(Block* block, const std::vector<StreamId>& streams) {
  return stream_events_.add(block, streams, [this] { return drain_device(); });
}

void DeviceHeap::retry_deferred() {
  std::vector<Deferred> waiting;
  waiting.swap(deferred_);
  for (Deferred& entry : waiting) {
    const bool capturing = std::any_of(entry.streams.begin(), entry.streams.end(),
                                       [&](StreamId stream) { return device_->capturing(stream); });
    if (capturing)
      deferred_.push_back(std::move(entry));
    else if (record_uses(entry.block, entry.streams))
      complete(entry.block);
  }
}

void DeviceHeap::poll_events() {
  const Device::Scope scope(*device_);
  if (!events_mutex_.try_lock()) return;  // somebody else polls
  const Locked guard(events_mutex_, kAdopt);
  retry_deferred();
  retry_elsewhere();
  stream_events_.poll([this](Block* block) { complete(block); });
  if (stream_events_.empty() && deferred_.empty() && !leaves_elsewhere()) clear_slow(kSlowPending);
}

void DeviceHeap::complete(Block* block) {
  if (claim_elsewhere(block)) complete_claimed(block);
}

void DeviceHeap::complete_claimed(Block* block) {
  const SharedLocked mapping(mappings_mutex_);
  if (!unmap_elsewhere(block)) return;
  if (watched()) [[unlikely]]
    tell(Change::kFreed, block);
  uint64_t address = 0, bytes = 0, requested = 0, order = 0;
  StreamId stream{};
  {
    const Locked guard(lock_);
    address = block->address, bytes = block->size, requested = block->tag;
    Arena& arena = *arenas_[block->arena];
    stream = arena.stream();
    usage_.complete(bytes, requested);
    order = ++order_;
    if (forget_elsewhere(block))
      arena.restore(block, order);
    else
      arena.put_hole(block, order);
  }
  trace_block(trace::Kind::kFree, order, address, bytes, requested, stream);
}

// Whether a hole fits the waiting request, or pages that are idle or may still be created.
bool DeviceHeap::could_serve(const Miss& miss) {
  const Locked guard(lock_);
  return fits(miss) || place_for(miss, have(miss), idle_bytes().all).has_value();
}

// What lies in another tier gives this device nothing when its block has waited.
uint64_t DeviceHeap::pending_here() const {
  uint64_t bytes = usage_.pending().bytes;
  for (const auto& [block, there] : spilled_) {
    if (block->state != BlockState::kPending) continue;
    for (const Piece& piece : there.pieces) bytes -= piece.range.bytes();
  }
  return bytes;
}

// Where moving idle pages would serve the request, waiting is worth it only for a block that will serve it
// whole.
uint64_t DeviceHeap::helpful_pending_bytes(const Miss& miss) {
  const bool pages_would_do = could_serve(miss);
  const Locked events_guard(events_mutex_);
  const Locked guard(lock_);
  if (!pages_would_do) return pending_here();
  const bool one_fits = stream_events_.any_block([&](Block* block) SPILLWAY_REQUIRES(lock_) {
    return miss.returning == nullptr && block->size >= miss.size &&
           arenas_[block->arena].get() == miss.arena && !spilled_.contains(block);
  });
  return one_fits && !fits(miss) ? pending_here() : 0;
}

bool DeviceHeap::wait_until_idle() {
  if (forked()) return false;
  const Device::Scope scope(*device_);
  return drain_device() == CUDA_SUCCESS;
}

// True: an event has passed, or somebody saw it pass.
bool DeviceHeap::wait_for_oldest() {
  std::optional<StreamEvents::Mark> oldest;
  {
    const Locked guard(events_mutex_);
    oldest = stream_events_.oldest();
  }
  if (!oldest || device_->wait(oldest->event) != CUDA_SUCCESS) return false;
  // Not left to a query: one that fails for good would have it waited for again, for ever.
  const Locked guard(events_mutex_);
  stream_events_.pass(*oldest, [this](Block* block) { complete(block); });
  return true;
}

uint64_t DeviceHeap::wait_for_events(const Miss& miss) {
  const Device::Scope scope(*device_);
  uint64_t before = 0;
  {
    const Locked guard(lock_);
    before = pending_here();
  }
  const bool pages_would_do = could_serve(miss);
  const auto enough = [&] {
    if (!pages_would_do) return could_serve(miss);
    const Locked guard(lock_);
    return fits(miss);
  };
  for (bool more = true; more && !enough();) {
    more = wait_for_oldest();
    poll_events();
  }
  const Locked guard(lock_);
  const uint64_t left = pending_here();
  return before > left ? before - left : 0;
}

}  // namespace spillway
