#include "tools/spillway/report/trace/trace_rebuilder.h"

#include <algorithm>
#include <tuple>

namespace spillway::tools {

using trace::Kind;
using trace::Record;
using trace::Term;

namespace {

constexpr uint64_t kPageBytes = uint64_t{2} << 20;

uint64_t end_of(uint64_t address, uint64_t bytes) {
  return address + std::min(bytes, UINT64_MAX - address);
}

constexpr uint64_t kUnitBytes = 512;

bool makes_sense(const Record& record) {
  return record.address % kUnitBytes == 0 && record.bytes % kUnitBytes == 0 && record.bytes > 0 &&
         record.bytes <= UINT64_MAX - record.address;
}

}  // namespace

void TraceRebuilder::learn(const Record& record) {
  expected_events_ += record.kind == Kind::kFree ? 2 : 1;  // requested, and completed
  const uint64_t page = record.address / kPageBytes * kPageBytes;
  if (record.kind == Kind::kAllocate) owner_from_[page] = {{record.value, 0}, record.stream};
  // Its pool is said by what is allocated there.
  if (record.kind == Kind::kSegmentReserve) owner_from_.try_emplace(page, PoolId(), record.stream);
}

void TraceRebuilder::take(const Record& record) {
  switch (record.kind) {
    case Kind::kAllocate:
      return allocate(record);
    case Kind::kFree:
      return free(record);
    case Kind::kFreePending:
      return free_later(record);
    case Kind::kSite:
      return name_site(record);
    case Kind::kOomSite:
      return name_asker(record);
    case Kind::kPageMap:
    case Kind::kPageUnmap:
      return change_pages(record);
    case Kind::kPageCreate:
    case Kind::kPageRelease:
      return change_held(record);
    case Kind::kMemory:
      out_.held_bytes = record.bytes;
      return sample(record.address);
    case Kind::kOom:
      return fail(record);
    case Kind::kOomEquation:
      if (record.detail == static_cast<uint64_t>(Term::kLive)) sample(record.bytes);
      return;
    default:
      return;
  }
}

void TraceRebuilder::add(Action action, const Record& record, uint64_t address, uint64_t size,
                         StackId stack) {
  HistoryEvent event;
  event.action = action;
  event.address = address;
  event.size = size;
  event.stream = record.stream;
  event.microseconds = clock_.at(record.order);
  event.stack = stack;
  out_.events.push_back(event);
}

void TraceRebuilder::allocate(const Record& record) {
  if (!makes_sense(record)) return void(++passed_over_);
  end_overlapped(record);
  Block block{record.bytes, record.requested == 0 ? record.bytes : std::min(record.requested, record.bytes),
              record.stream};
  block.born = out_.events.size();
  add(Action::kAllocate, record, record.address, block.requested);
  out_.events.back().pool = {record.value, 0};
  known_ += block.requested;
  blocks_[record.address] = block;
}

// Which place allocated a block is known right after its allocation.
void TraceRebuilder::name_site(const Record& record) {
  const auto block = blocks_.find(record.address);
  const auto stack = stacks_.find(record.detail);
  if (block == blocks_.end() || block->second.stack != 0) return;
  if (stack != stacks_.end()) block->second.stack = stack->second;
  HistoryEvent* const birth = birth_of(*block);
  if (birth == nullptr) return;
  birth->stack = block->second.stack;
  const size_t born = block->second.born;
  if (!sampled_.empty() && sampled_.back().event == born) return;
  const auto requested = static_cast<double>(std::max<uint64_t>(block->second.requested, 1));
  sampled_.push_back({born, static_cast<double>(record.bytes) / requested});
}

// Null where the block is older than the history.
HistoryEvent* TraceRebuilder::birth_of(const std::pair<const uint64_t, Block>& block) {
  const auto& [address, known] = block;
  if (known.born >= out_.events.size()) return nullptr;
  HistoryEvent& event = out_.events[known.born];
  return event.action == Action::kAllocate && event.address == address ? &event : nullptr;
}

void TraceRebuilder::name_asker(const Record& record) {
  const auto failure = failed_.find(record.value);
  const auto stack = stacks_.find(record.detail);
  if (failure != failed_.end() && stack != stacks_.end()) out_.events[failure->second].stack = stack->second;
}

// The records of a thread whose ring is full are gone, other threads' are not: what lies there was freed.
void TraceRebuilder::end_overlapped(const Record& record) {
  auto block = blocks_.lower_bound(record.address);
  if (block != blocks_.begin()) {
    const auto before = std::prev(block);
    if (before->first + before->second.bytes > record.address) block = before;
  }
  while (block != blocks_.end() && block->first < record.address + record.bytes) {
    ++lost_frees_;
    const auto gone = block++;
    if (!gone->second.pending)
      add(Action::kFreeRequested, record, gone->first, gone->second.requested, gone->second.stack);
    add(Action::kFreeCompleted, record, gone->first, gone->second.requested, gone->second.stack);
    forget(gone);
  }
}

void TraceRebuilder::forget(std::map<uint64_t, Block>::iterator block) {
  if (!block->second.pending) known_ -= block->second.requested;
  blocks_.erase(block);
}

void TraceRebuilder::free(const Record& record) {
  const auto block = blocks_.find(record.address);
  const bool known = block != blocks_.end();
  const uint64_t requested = known ? block->second.requested : std::min(record.requested, record.bytes);
  const StackId stack = known ? block->second.stack : 0;
  if (!known) freed_older_ += requested;
  if (!known || !block->second.pending) add(Action::kFreeRequested, record, record.address, requested, stack);
  add(Action::kFreeCompleted, record, record.address, requested, stack);
  if (known) forget(block);
}

void TraceRebuilder::free_later(const Record& record) {
  auto block = blocks_.find(record.address);
  if (block == blocks_.end()) {
    if (!makes_sense(record)) return void(++passed_over_);
    end_overlapped(record);
    freed_older_ += record.requested;
    block = blocks_.emplace(record.address, Block{record.bytes, record.requested, record.stream}).first;
    known_ += record.requested;
  }
  if (block->second.pending) return void(++passed_over_);
  add(Action::kFreeRequested, record, record.address, block->second.requested, block->second.stack);
  known_ -= block->second.requested;
  block->second.pending = true;
}

void TraceRebuilder::change_pages(const Record& record) {
  if (record.value != 0) return;  // the driver refused
  if (!makes_sense(record)) return void(++passed_over_);
  const bool maps = record.kind == Kind::kPageMap;
  const uint64_t end = end_of(record.address, record.bytes);
  maps ? pages_.add(record.address, end) : pages_.remove(record.address, end);
  Record with_stream = record;
  const auto [pool, stream] = owner_of(record.address);
  with_stream.stream = stream;
  add(maps ? Action::kSegmentAllocate : Action::kSegmentFree, with_stream, record.address, record.bytes);
  out_.events.back().pool = pool;
}

void TraceRebuilder::change_held(const Record& record) {
  if (!out_.held_bytes || record.value != 0) return;  // not counted yet; the driver refused
  uint64_t& held = *out_.held_bytes;
  if (record.kind == Kind::kPageCreate)
    held += std::min(record.bytes, UINT64_MAX - held);
  else
    held -= std::min(record.bytes, held);
}

void TraceRebuilder::fail(const Record& record) {
  const bool failed = failures_.is_failure(record);
  failed_[record.value] = out_.events.size();
  add(failed ? Action::kOutOfMemory : Action::kOther, record, failed ? failures_.room(record) : 0,
      record.requested);
  out_.events.back().pool = {failures_.pool(record), 0};
  if (failed) free_.push_back(failures_.free(record));
}

PoolAndStream TraceRebuilder::owner_of(uint64_t address) const {
  const auto after = owner_from_.upper_bound(address);
  return after == owner_from_.begin() ? PoolAndStream() : std::prev(after)->second;
}

void TraceRebuilder::place_blocks() {
  std::vector<bool> lives(out_.events.size());
  for (const auto& block : blocks_)
    if (birth_of(block) != nullptr && !block.second.pending) lives[block.second.born] = true;
  place_the_others(sampled_, lives, &out_);
  for (auto& block : blocks_)
    if (const HistoryEvent* birth = birth_of(block)) block.second.stack = birth->stack;
}

// Pages whose mapping is older than the history are known by the blocks on them.
DeviceHistory TraceRebuilder::finish() {
  if (lacks_.places) place_blocks();
  for (const auto& [address, block] : blocks_) {
    const uint64_t end = end_of(address, block.bytes);
    pages_.add(address / kPageBytes * kPageBytes, end_of((end - 1) / kPageBytes * kPageBytes, kPageBytes));
  }
  for (const auto& [begin, end] : pages_.ends()) add_segments(begin, end);
  find_free_bytes();
  const uint64_t known = sample_.known + (freed_older_ - sample_.freed_older);
  out_.unknown_bytes = sample_.live > known ? sample_.live - known : 0;
  return std::move(out_);
}

// A failure's event holds the room so far; free is what is mapped nowhere, pages without a place included.
// Where records are lost, there are pages that are mapped without a record of it.
void TraceRebuilder::find_free_bytes() {
  uint64_t mapped = 0;
  for (const HistorySegment& segment : out_.segments) mapped += segment.size;
  for (auto event = out_.events.rbegin(); event != out_.events.rend(); ++event) {
    if (event->action == Action::kSegmentAllocate) mapped -= event->size;
    if (event->action == Action::kSegmentFree) mapped += event->size;
    if (event->action != Action::kOutOfMemory) continue;
    event->address -= std::min(event->address, mapped);
    if (lacks_.oldest) event->address = std::min(event->address, free_.back());
    free_.pop_back();
  }
}

// Address ranges of two streams, or pools, may touch; no block lies across.
void TraceRebuilder::add_segments(uint64_t begin, uint64_t end) {
  while (begin < end) {
    uint64_t until = end;
    const PoolAndStream owner = owner_of(begin);
    for (auto next = owner_from_.upper_bound(begin); next != owner_from_.end() && next->first < end; ++next) {
      if (next->second == owner) continue;
      const auto block = blocks_.lower_bound(next->first);
      const bool cuts = block != blocks_.begin() &&
                        end_of(std::prev(block)->first, std::prev(block)->second.bytes) > next->first;
      if (cuts) continue;
      until = next->first;
      break;
    }
    HistorySegment segment;
    segment.address = begin;
    segment.size = until - begin;
    std::tie(segment.pool, segment.stream) = owner;
    segment.large = segment.expandable = true;
    add_blocks(&segment);
    out_.segments.push_back(std::move(segment));
    begin = until;
  }
}

void TraceRebuilder::add_blocks(HistorySegment* segment) const {
  const uint64_t end = segment->address + segment->size;
  uint64_t at = segment->address;
  const auto leave_free = [&](uint64_t until) {
    if (until > at) segment->blocks.push_back({at, until - at, 0, BlockState::kFree, 0});
  };
  for (auto it = blocks_.lower_bound(at); it != blocks_.end() && it->first < end; ++it) {
    const auto& [address, block] = *it;
    leave_free(address);
    segment->blocks.push_back({address, block.bytes, block.requested,
                               block.pending ? BlockState::kPendingFree : BlockState::kAllocated,
                               block.stack});
    at = address + block.bytes;
  }
  leave_free(end);
}

}  // namespace spillway::tools
