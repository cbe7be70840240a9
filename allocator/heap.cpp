#include "allocator/heap.h"

#include <unistd.h>

#include <algorithm>
#include <array>

#include "allocator/accounting/journal.h"
#include "allocator/tiers/choice/choose.h"

namespace spillway {
namespace {

constexpr uint64_t kLargestRequest = uint64_t{1} << 46;
constexpr unsigned kPollEvery = 32;

uint64_t size_of(const Request& request) {
  const uint64_t bytes = std::max(request.bytes, request.padded);
  return bytes > kLargestRequest ? kLargestRequest : (bytes + kUnitBytes - 1) & ~(kUnitBytes - 1);
}

// Heaps that a child of fork must close. Slots, because the child may take no lock.
std::array<std::atomic<HeapState*>, 256> open_heaps;

void register_heap(HeapState* heap) {
  static const int handler = pthread_atfork(nullptr, nullptr, [] {
    for (auto& slot : open_heaps)
      if (HeapState* open = slot.load()) open->set_slow(kSlowForked);
  });
  (void)handler;
  for (auto& slot : open_heaps) {
    HeapState* empty = nullptr;
    if (slot.compare_exchange_strong(empty, heap)) return;
  }
}

void unregister_heap(HeapState* heap) {
  for (auto& slot : open_heaps) {
    HeapState* self = heap;
    slot.compare_exchange_strong(self, nullptr);
  }
}

// Pages and addresses, when nobody uses the heap any more.
void give_back_tiling(HeapState& heap) {
  const Locked guard(heap.lock);
  Device& device = *heap.device;
  for (const auto& arena : heap.tiling.arenas()) {
    for (const Segment& segment : arena->segments()) {
      const uint64_t end = segment.range.begin + segment.pages.size() * heap.page_bytes;
      for (uint64_t at = segment.range.begin; at < end;) {
        const AddressRange handle = arena->handle_at(at);
        at = handle.end;
        if (arena->page(handle.begin) == 0) continue;
        device.unmap(handle.begin, handle.bytes());
        device.release(arena->page(handle.begin));
      }
      if (arena->has_pages())
        device.release_range(segment.range);
      else if (!has_own_source(*arena))
        device.free(segment.given.begin);
    }
  }
  for (const driver::Page& page : heap.pages.spare_pages()) device.release(page.handle);
}

}  // namespace

DeviceHeap::DeviceHeap(AllocatorContext& shared, std::unique_ptr<Device> device, uint64_t order)
    : heap_(shared, std::move(device), order) {
  register_heap(&heap_);
}

DeviceHeap::~DeviceHeap() {
  unregister_heap(&heap_);
  if (heap_.forked()) return;
  const Device::Scope scope(*heap_.device);
  heap_.device->drain_all();
  sharing_.end();
  migration_.retry_left_over();
  releaser_.end();
  file_.end();
  allocations_.end();
  give_back_tiling(heap_);
  pending_.end();
  heap_.step_clock.end();
  marks_.end();
}

Status DeviceHeap::set_pool(uint64_t pool, uint32_t flags) {
  if (heap_.forked()) return Status::kOk;
  bool set = false;
  {
    const Locked guard(heap_.lock);
    set = heap_.tiling.set_flags(pool, flags);
  }
  if ((flags & kPoolReleased) != 0) allocations_.end_unused_sources();
  return set ? Status::kOk : Status::kInvalid;
}

Status DeviceHeap::set_source(uint64_t pool, const PoolSettings::Source& source) {
  if (heap_.forked()) return Status::kUnavailable;
  const Locked guard(heap_.lock);
  return heap_.tiling.set_source(pool, source) ? Status::kOk : Status::kInvalid;
}

uint64_t DeviceHeap::empty_sources(uint64_t pool) {
  if (heap_.forked() || inside_handler) return 0;
  const Device::Scope scope(*heap_.device);
  return allocations_.release_to_sources(pool);
}

// A private pool's requests are rare enough to look the pool up. Where its memory is a source's, a block that
// another stream is past is free at once, as natively, so that the source is asked for no more.
uint64_t DeviceHeap::pool_size(const Request& request) {
  const uint64_t size = size_of(request), page = heap_.page_bytes;
  uint32_t flags = 0;
  {
    const Locked guard(heap_.lock);
    flags = heap_.tiling.pools().flags_of(request.pool);
  }
  if ((flags & kPoolOwnSource) != 0 && pending_.any() && !heap_.device->capturing(request.stream))
    pending_.poll();
  const bool whole = (flags & (kPoolWholePages | kPoolSingleHandle)) != 0;
  return whole ? (size + page - 1) / page * page : size;
}

Status DeviceHeap::allocate(const Request& request, uint64_t* address, FailurePtr* failure) {
  const uint64_t size = request.pool == 0 ? size_of(request) : pool_size(request);
  if (heap_.slow.load(std::memory_order_relaxed) != 0) [[unlikely]]
    return allocate_slow(request, size, address, failure);
  uint64_t order = 0, at = 0, bytes = 0;
  {
    const Locked guard(heap_.lock);
    heap_.requests.store(heap_.requests.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    Arena& arena = heap_.tiling.arena_for(request.stream, request.pool, size <= kSmallBytes);
    if (Block* hole = arena.best(size)) [[likely]] {
      Block* block = arena.take(hole, size, request.bytes);
      order = heap_.commit(block);
      at = block->address;
      bytes = block->size;
    }
  }
  if (bytes == 0) [[unlikely]]
    return requests_.allocate(request, size, false, false, address, failure);
  journal::block(heap_, {.kind = trace::Kind::kAllocate,
                         .order = order,
                         .address = at,
                         .bytes = bytes,
                         .requested = request.bytes,
                         .stream = request.stream,
                         .value = request.pool});
  *address = at;
  return Status::kOk;
}

Status DeviceHeap::allocate_slow(const Request& request, uint64_t size, uint64_t* address,
                                 FailurePtr* failure) {
  const Status status = serve_slow(request, size, address, failure);
  if (status == Status::kOk && heap_.watched())
    journal::tell(heap_, Change::kAllocated, heap_.shared.page_map.find(*address));
  return status;
}

Status DeviceHeap::serve_slow(const Request& request, uint64_t size, uint64_t* address, FailurePtr* failure) {
  if (heap_.forked()) {
    if (failure != nullptr) {
      *failure = std::make_unique<Failure>();
      (*failure)->text = "this process is a child of fork: CUDA cannot be used in it";
    }
    return Status::kUnavailable;
  }
  const uint32_t slow = heap_.slow.load(std::memory_order_relaxed);
  bool inject = false, persistent = false;
  if ((slow & kSlowInjection) != 0) inject = heap_.shared.injection.fails(&persistent);
  journal::BlockRecord served{.kind = trace::Kind::kAllocate,
                              .requested = request.bytes,
                              .stream = request.stream,
                              .value = request.pool};
  bool poll = false;
  {
    const Locked guard(heap_.lock);
    heap_.requests.store(heap_.requests.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    poll = (slow & kSlowPending) != 0 && ++heap_.since_poll >= kPollEvery;
    if (poll) heap_.since_poll = 0;
    Arena& arena = heap_.tiling.arena_for(request.stream, request.pool, size <= kSmallBytes);
    if (Block* hole = inject ? nullptr : heap_.tiling.find_hole(arena, size)) {
      Block* block = arena.take(hole, size, request.bytes);
      served.order = heap_.commit(block);
      heap_.note_need();
      served.address = block->address;
      served.bytes = block->size;
    }
  }
  if (served.bytes == 0) return requests_.allocate(request, size, inject, persistent, address, failure);
  *address = served.address;
  journal::block(heap_, served);
  if (poll && !heap_.device->capturing(request.stream)) pending_.poll();
  return Status::kOk;
}

Block* DeviceHeap::take_at(const Request& request, uint64_t address, uint64_t asked,
                           journal::BlockRecord* taken) {
  for (const auto& arena : heap_.tiling.arenas()) {
    if (arena->pool() != request.pool || arena->stream() != request.stream) continue;
    // Among large blocks a small one takes more, as where a request is served from a large hole.
    const uint64_t size = arena->small() ? asked : std::max(asked, kSmallBytes + kUnitBytes);
    Block* hole = arena->hole_at(address, size);
    const bool whole = arena->memory == PoolMemory::kWholeAllocations;
    if (hole == nullptr || (whole && hole->address != address)) continue;
    Block* block =
        whole ? arena->take(hole, size, request.bytes) : arena->take_at(hole, address, size, request.bytes);
    heap_.requests.store(heap_.requests.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    taken->bytes = block->size;
    taken->order = heap_.commit(block);
    return block;
  }
  return nullptr;
}

Status DeviceHeap::allocate_at(const Request& request, uint64_t address) {
  if (heap_.forked()) return Status::kUnavailable;
  const uint64_t asked = pool_size(request);
  journal::BlockRecord taken{.kind = trace::Kind::kAllocate,
                             .address = address,
                             .requested = request.bytes,
                             .stream = request.stream,
                             .value = request.pool};
  const Block* block = nullptr;
  {
    const Locked guard(heap_.lock);
    block = take_at(request, address, asked, &taken);
  }
  if (block == nullptr) return Status::kNotFound;
  journal::block(heap_, taken);
  if (heap_.watched()) journal::tell(heap_, Change::kAllocated, block);
  return Status::kOk;
}

// It is no program's any more. Returns its place in the order.
[[gnu::always_inline]] inline uint64_t DeviceHeap::begin_release(Block* block, FreedBlock* freed) {
  const Arena& arena = heap_.tiling.arena_of(block);
  *freed = {heap_.device->id(), block->size, block->tag, arena.stream(), arena.pool()};
  heap_.usage.free(block->size, block->tag, (block->shared & (kOtherStreams | kSpilled)) != 0);
  heap_.shared.page_map.clear(block->address);
  if ((block->shared & kSited) != 0) [[unlikely]]
    forget_site(block);
  return ++heap_.order;
}

Status DeviceHeap::free(Block* block, uint64_t address, FreedBlock* freed) {
  if (heap_.is_slow(kSlowForked | kSlowWatched)) [[unlikely]] {
    if (heap_.forked()) return Status::kOk;
    journal::tell_free(heap_, block, address);
  }
  uint64_t order = 0;
  std::optional<SharedRelease> shared;
  {
    const Locked guard(heap_.lock);
    if (!heap_.is_live(block, address)) [[unlikely]]
      return Status::kNotFound;
    order = begin_release(block, freed);
    if (block->shared == 0) [[likely]]
      heap_.tiling.arena_of(block).put_hole(block, order);
    else
      shared = release_shared(block, order);
  }
  const journal::BlockRecord record{.kind = trace::Kind::kFree,
                                    .order = order,
                                    .address = address,
                                    .bytes = freed->bytes,
                                    .requested = freed->requested_bytes,
                                    .stream = freed->stream};
  if (shared) [[unlikely]]
    finish_release(block, record, std::move(*shared));
  else
    journal::block(heap_, record);
  return Status::kOk;
}

// Of a block that others use too, or that lies elsewhere. It waits for the streams that it was recorded on,
// and what lies in another tier can only be unmapped when its own is past it too.
DeviceHeap::SharedRelease DeviceHeap::release_shared(Block* block, uint64_t order) {
  Arena& arena = heap_.tiling.arena_of(block);
  SharedRelease release;
  release.pending = (block->shared & (kOtherStreams | kSpilled)) != 0;
  if ((block->shared & kRegistered) != 0) heap_.tiers.registered.remove(block);
  release.descriptors = heap_.exports.withdraw(heap_.tiling, block);
  release.streams = heap_.recorded.take(block);
  if ((block->shared & kSpilled) != 0) release.streams.push_back({arena.stream()});
  block->shared = 0;
  if (release.pending)
    block->state = BlockState::kPending;
  else
    arena.put_hole(block, order);
  return release;
}

void DeviceHeap::finish_release(Block* block, journal::BlockRecord freed, SharedRelease release) {
  for (const int descriptor : release.descriptors) close(descriptor);
  if (!release.pending) return journal::block(heap_, freed);
  freed.kind = trace::Kind::kFreePending;
  freed.value = release.streams.size();
  freed.detail = release.streams.empty() ? 0 : static_cast<uint64_t>(release.streams.front().stream);
  journal::block(heap_, freed);
  pending_.add(block, std::move(release.streams));
}

Status DeviceHeap::record_stream(Block* block, uint64_t address, StreamId stream) {
  if (heap_.forked()) return Status::kOk;
  const RecordedStream on = pending_.recorded(stream);
  const Locked guard(heap_.lock);
  if (!heap_.is_live(block, address)) return Status::kNotFound;
  if (on == RecordedStream{heap_.tiling.arena_of(block).stream()}) return Status::kOk;
  heap_.recorded.add(block, on);
  block->shared |= kOtherStreams;
  return Status::kOk;
}

bool DeviceHeap::find_block(uint64_t address, BlockInfo* out) {
  if (heap_.forked()) return false;
  const Locked guard(heap_.lock);
  const Block* block = heap_.tiling.block_at(address, heap_.shared.page_map);
  if (block == nullptr || (block->state != BlockState::kLive && block->state != BlockState::kPending))
    return false;
  *out = heap_.info(block);
  if (heap_.tiling.arena_of(block).has_pages()) return true;
  while (block->previous != nullptr) block = block->previous;
  out->segment = block->address;
  return true;
}

void DeviceHeap::blocks(std::vector<BlockInfo>* out) {
  if (heap_.forked()) return;
  const Locked guard(heap_.lock);
  uint64_t segment = 0;
  for (const Block* block : heap_.tiling.blocks()) {
    if (block->previous == nullptr) segment = heap_.tiling.arena_of(block).has_pages() ? 0 : block->address;
    if (block->state == BlockState::kVoid) continue;
    out->push_back(heap_.info(block));
    out->back().segment = segment;
  }
}

uint64_t DeviceHeap::give_back(uint64_t bytes_asked, uint64_t pool, Round round) {
  if (heap_.forked()) return 0;
  const Device::Scope scope(*heap_.device);
  if (pending_.any()) pending_.poll();
  reclaimer_.drain_all();
  const uint64_t asked =
      (std::min(bytes_asked, UINT64_MAX / 2) + heap_.page_bytes - 1) / heap_.page_bytes * heap_.page_bytes;
  uint64_t bytes = reclaimer_.release_spare(asked, round);
  if (bytes < asked) bytes += allocations_.release(pool);
  if (bytes >= asked) return bytes;
  growth_.forget_reused();  // the driver is asked anew from here on
  return bytes + reclaimer_.release_idle(asked - bytes, pool, round);
}

void DeviceHeap::set_limit(uint64_t bytes) {
  if (heap_.forked()) return;
  uint64_t over = 0;
  {
    const Locked guard(heap_.lock);
    Quota& quota = heap_.pages.quota();
    quota.set_limit(bytes);
    over = quota.held() > quota.limit() ? quota.held() - quota.limit() : 0;
  }
  if (over != 0) give_back(over);
}

bool DeviceHeap::wait_until_idle() {
  if (heap_.forked()) return false;
  const Device::Scope scope(*heap_.device);
  return drain_.device() == CUDA_SUCCESS;
}

DeviceUsage DeviceHeap::usage() {
  if (heap_.forked()) return {};
  const Locked guard(heap_.lock);
  return {.all = heap_.usage.read(Usage::Of::kAll),
          .small = heap_.usage.read(Usage::Of::kSmall),
          .large = heap_.usage.read(Usage::Of::kLarge),
          .maps = heap_.maps,
          .unmaps = heap_.unmaps};
}

void DeviceHeap::reset_totals() {
  if (heap_.forked()) return;
  const Locked guard(heap_.lock);
  heap_.usage.reset_totals();
  heap_.maps = heap_.unmaps = 0;
}

// The trace is told a peak first that it does not know.
void DeviceHeap::reset_peaks() {
  if (heap_.forked()) return;
  bool untold = false;
  {
    const Locked guard(heap_.lock);
    untold = heap_.pages.peak_held() > heap_.told.peak;
  }
  if (untold) journal::memory(heap_);
  const Locked guard(heap_.lock);
  heap_.usage.reset_peaks();
  heap_.pages.reset_peak();
}

void DeviceHeap::stream_ends(StreamId stream) {
  if (heap_.forked()) return;
  pending_.stream_ends(stream);
  const Locked ending(heap_.streams_mutex);
  uint64_t order = 0;
  bool has_blocks = false;
  {
    const Locked guard(heap_.lock);
    order = heap_.order;
    has_blocks = heap_.tiling.uses(stream);
    if (!has_blocks && !heap_.recorded.uses(stream)) return;
  }
  const Device::Scope scope(*heap_.device);
  const bool over = has_blocks && heap_.device->idle(stream);
  const Locked guard(heap_.lock);
  heap_.tiling.stream_ends(stream, over, order);
  heap_.recorded.stream_ends(stream);
}

bool DeviceHeap::mark_progress(CUcontext current, StreamId stream) {
  if (heap_.forked() || !heap_.device->is_context(current)) return false;
  const Device::Scope scope(*heap_.device);
  marks_.mark(stream);
  return true;
}

uint64_t DeviceHeap::passed_marks() {
  if (heap_.forked()) return 0;
  const Device::Scope scope(*heap_.device);
  return marks_.passed();
}

double DeviceHeap::slowest_marks_us() {
  return heap_.forked() ? 0 : marks_.slowest_us();
}

}  // namespace spillway
