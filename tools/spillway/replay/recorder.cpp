#include "tools/spillway/replay/recorder.h"

namespace spillway::tools {

void ReplayRecorder::begin(size_t request) {
  request_ = request;
  for (; steps_ < requests_.steps.size() && requests_.steps[steps_] <= request; ++steps_)
    out_.step_events.push_back(out_.events.size());
}

void ReplayRecorder::add(Action action, const MemoryOwner& owner, uint64_t address, uint64_t size,
                         StackId stack) {
  HistoryEvent event;
  event.action = action;
  event.address = address;
  event.size = size;
  event.stream = requests_.stream_of(owner.stream);
  event.pool = requests_.pool_of(owner.pool);
  event.microseconds = requests_.time_of(request_);
  event.stack = stack;
  out_.events.push_back(event);
}

void ReplayRecorder::add_of_block(Action action, uint32_t block) {
  const Block& of = blocks_[block];
  add(action, {of.stream, of.pool}, of.address, of.requested, requests_.stack_of(block));
}

void ReplayRecorder::memory_taken(const MemoryOwner& owner, uint64_t address, uint64_t bytes) {
  memory_[owner].add(address, address + bytes);
  add(Action::kSegmentAllocate, owner, address, bytes, 0);
}

void ReplayRecorder::memory_given_back(const MemoryOwner& owner, uint64_t address, uint64_t bytes) {
  memory_[owner].remove(address, address + bytes);
  add(Action::kSegmentFree, owner, address, bytes, 0);
}

void ReplayRecorder::allocated(uint32_t block, uint64_t address, uint64_t bytes) {
  const ReplayRequest& request = requests_.requests[request_];
  blocks_[block] = {address, bytes, request.bytes, request.stream, request.pool};
  add_of_block(Action::kAllocate, block);
}

void ReplayRecorder::freed_later(uint32_t block) {
  if (blocks_[block].bytes == 0 || blocks_[block].pending) return;
  blocks_[block].pending = true;
  add_of_block(Action::kFreeRequested, block);
}

void ReplayRecorder::freed(uint32_t block) {
  freed_later(block);
  add_of_block(Action::kFreeCompleted, block);
  blocks_[block] = {};
}

void ReplayRecorder::failed(uint64_t free) {
  const ReplayRequest& request = requests_.requests[request_];
  add(Action::kOutOfMemory, {request.stream, request.pool}, free, request.bytes,
      requests_.stack_of(request.block));
}

void ReplayRecorder::add_segment(const MemoryOwner& owner, uint64_t begin, uint64_t end,
                                 const std::map<uint64_t, uint32_t>& live) {
  HistorySegment segment;
  segment.address = begin;
  segment.size = end - begin;
  segment.stream = requests_.stream_of(owner.stream);
  segment.pool = requests_.pool_of(owner.pool);
  segment.large = !owner.small;
  segment.expandable = expandable_;
  uint64_t at = begin;
  const auto leave_free = [&](uint64_t until) {
    if (until > at) segment.blocks.push_back({at, until - at, 0, BlockState::kFree, 0});
  };
  for (auto it = live.lower_bound(begin); it != live.end() && it->first < end; ++it) {
    const Block& block = blocks_[it->second];
    leave_free(block.address);
    segment.blocks.push_back({block.address, block.bytes, block.requested,
                              block.pending ? BlockState::kPendingFree : BlockState::kAllocated,
                              requests_.stack_of(it->second)});
    at = block.address + block.bytes;
  }
  leave_free(end);
  out_.segments.push_back(std::move(segment));
}

DeviceHistory ReplayRecorder::finish() {
  std::map<uint64_t, uint32_t> live;
  for (uint32_t block = 0; block < blocks_.size(); ++block)
    if (blocks_[block].bytes > 0) live[blocks_[block].address] = block;
  for (const auto& [owner, ranges] : memory_)
    for (const auto& [begin, end] : ranges.ends()) add_segment(owner, begin, end, live);
  std::sort(out_.segments.begin(), out_.segments.end(),
            [](const HistorySegment& a, const HistorySegment& b) { return a.address < b.address; });
  return std::move(out_);
}

}  // namespace spillway::tools
