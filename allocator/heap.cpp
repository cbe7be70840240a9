#include "allocator/heap.h"

#include <algorithm>
#include <array>

namespace spillway {

thread_local bool inside_handler = false;

namespace {
constexpr uint64_t kLargestRequest = uint64_t{1} << 46;
constexpr unsigned kPollEvery = 32;

uint64_t size_of(const Request& request) {
  const uint64_t bytes = std::max(request.bytes, request.padded);
  return bytes > kLargestRequest ? kLargestRequest : (bytes + kUnitBytes - 1) & ~(kUnitBytes - 1);
}

// Heaps that a child of fork must close. Slots, because the child may take no lock.
std::array<std::atomic<DeviceHeap*>, 256> open_heaps;

void register_heap(DeviceHeap* heap) {
  static const int handler = pthread_atfork(nullptr, nullptr, [] {
    for (auto& slot : open_heaps)
      if (DeviceHeap* open = slot.load()) open->set_slow(kSlowForked);
  });
  (void)handler;
  for (auto& slot : open_heaps) {
    DeviceHeap* empty = nullptr;
    if (slot.compare_exchange_strong(empty, heap)) return;
  }
}

void unregister_heap(DeviceHeap* heap) {
  for (auto& slot : open_heaps) {
    DeviceHeap* self = heap;
    slot.compare_exchange_strong(self, nullptr);
  }
}
}  // namespace

DeviceHeap::DeviceHeap(Allocator& allocator, std::unique_ptr<Device> device, uint64_t order)
    : allocator_(allocator),
      page_map_(*allocator.page_map_),
      device_(std::move(device)),
      device_index_(static_cast<uint8_t>(device_->id())),
      page_bytes_(device_->page_bytes()),
      order_(order),
      quota_(device_index_, allocator.budget_, allocator.guests_[device_index_]),
      slab_(device_index_),
      imports_(*device_, mappings_mutex_, [this] { return drain_device(); }),
      pinned_host_cache_(*device_),
      stream_events_(*device_) {
  register_heap(this);
}

DeviceHeap::~DeviceHeap() {
  unregister_heap(this);
  if (forked()) return;
  const Device::Scope scope(*device_);
  device_->drain_all();
  end_sharing();
  end_spilling();
  for (auto& arena : arenas_) {
    for (const Segment& segment : arena->segments()) {
      for (uint64_t i = 0; i < segment.pages.size(); ++i) {
        if (segment.pages[i] == 0) continue;
        device_->unmap(segment.range.begin + i * page_bytes_, page_bytes_);
        device_->release(segment.pages[i]);
      }
      if (arena->single_handle)
        device_->free(segment.range.begin);
      else
        device_->release_range(segment.range);
    }
  }
  for (CUmemGenericAllocationHandle page : spare_) device_->release(page);
  stream_events_.end();
}

Arena& DeviceHeap::arena_for(StreamId stream, uint64_t pool, bool small) {
  if (last_arenas_[small] == nullptr || last_stream_ != stream || last_pool_ != pool) [[unlikely]] {
    last_stream_ = stream;
    last_pool_ = pool;
    last_arenas_[0] = last_arenas_[1] = nullptr;
    for (auto& arena : arenas_)
      if (arena->stream() == stream && arena->pool() == pool) last_arenas_[arena->small()] = arena.get();
    if (last_arenas_[small] == nullptr) last_arenas_[small] = &new_arena(stream, pool, small);
  }
  return *last_arenas_[small];
}

uint32_t DeviceHeap::flags_of(uint64_t pool) const {
  const auto found = pools_.find(pool);
  return found == pools_.end() ? 0 : found->second;
}

Status DeviceHeap::set_pool(uint64_t pool, uint32_t flags) {
  if (forked()) return Status::kOk;
  const Locked guard(lock_);
  const bool single = (flags & kPoolSingleHandle) != 0;
  for (auto& arena : arenas_)
    if (arena->pool() == pool && arena->single_handle != single) return Status::kInvalid;
  pools_[pool] = flags;
  for (auto& arena : arenas_)
    if (arena->pool() == pool) arena->pool_flags = flags;
  return Status::kOk;
}

// A private pool's requests are rare enough to look the pool up.
uint64_t DeviceHeap::pool_size(const Request& request) {
  const uint64_t size = size_of(request);
  const Locked guard(lock_);
  const bool whole = (flags_of(request.pool) & (kPoolWholePages | kPoolSingleHandle)) != 0;
  return whole ? (size + page_bytes_ - 1) / page_bytes_ * page_bytes_ : size;
}

Arena& DeviceHeap::new_arena(StreamId stream, uint64_t pool, bool small) {
  const bool single = (flags_of(pool) & kPoolSingleHandle) != 0;
  // Address space of pools that are gone is used again.
  for (auto& arena : arenas_) {
    if ((arena->pool_flags & kPoolReleased) == 0 || arena->small() != small || !arena->empty() ||
        arena->single_handle != single)
      continue;
    const uint64_t before = arena->pool();
    arena->rename(stream, pool, flags_of(pool));
    const bool gone = std::none_of(arenas_.begin(), arenas_.end(),
                                   [&](const auto& other) { return other->pool() == before; });
    if (gone) pools_.erase(before);
    return *arena;
  }
  const auto index = static_cast<uint16_t>(arenas_.size());
  arenas_.push_back(std::make_unique<Arena>(index, stream, pool, small, page_bytes_, slab_));
  arenas_.back()->pool_flags = flags_of(pool);
  arenas_.back()->single_handle = single;
  return *arenas_.back();
}

uint64_t DeviceHeap::kept_bytes(const Arena& arena, bool waits) const {
  return &arena == kept_.arena && !waits ? kept_.bytes : UINT64_MAX;
}

Block* DeviceHeap::find_hole(Arena& arena, uint64_t size, bool waits) {
  Block* hole = arena.best(size);
  return hole != nullptr && hole->size >= kept_bytes(arena, waits) ? nullptr : hole;
}

// Counts the block as live and returns its place in the order.
uint64_t DeviceHeap::commit(Block* block) {
  usage_.allocate(block->size, block->tag);
  page_map_.set(block->address, block);
  ++order_;
  begin_history(block);
  return order_;
}

void DeviceHeap::trace_block(trace::Kind kind, uint64_t order, uint64_t address, uint64_t bytes,
                             uint64_t requested, StreamId stream, uint64_t value, uint64_t detail) {
  trace::Trace* trace = allocator_.trace();
  if (trace == nullptr) return;
  trace::Record record;
  record.order = order;
  record.address = address;
  record.bytes = bytes;
  record.requested = requested;
  record.stream = static_cast<uint64_t>(stream);
  record.value = static_cast<uint32_t>(value);
  record.detail = detail;
  record.kind = kind;
  record.device = device_index_;
  trace->write(record);
}

void DeviceHeap::write(trace::Record record) {
  trace::Trace* trace = allocator_.trace();
  if (trace == nullptr) return;
  record.order = order();
  record.device = device_index_;
  trace->write(record);
}

uint64_t DeviceHeap::order() {
  const Locked guard(lock_);
  return ++order_;
}

void DeviceHeap::raise_order(uint64_t order) {
  const Locked guard(lock_);
  order_ = std::max(order_, order);
}

Status DeviceHeap::allocate(const Request& request, uint64_t* address, FailurePtr* failure) {
  const uint64_t size = request.pool == 0 ? size_of(request) : pool_size(request);
  if (slow_.load(std::memory_order_relaxed) != 0) [[unlikely]]
    return allocate_slow(request, size, address, failure);
  uint64_t order = 0, at = 0, bytes = 0;
  {
    const Locked guard(lock_);
    requests_.store(requests_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    Arena& arena = arena_for(request.stream, request.pool, size <= kSmallBytes);
    if (Block* hole = arena.best(size)) [[likely]] {
      Block* block = arena.take(hole, size, request.bytes);
      order = commit(block);
      at = block->address;
      bytes = block->size;
    }
  }
  if (bytes == 0) [[unlikely]]
    return miss(request, size, false, false, address, failure);
  trace_block(trace::Kind::kAllocate, order, at, bytes, request.bytes, request.stream, request.pool);
  *address = at;
  return Status::kOk;
}

Status DeviceHeap::allocate_slow(const Request& request, uint64_t size, uint64_t* address,
                                 FailurePtr* failure) {
  const Status status = serve_slow(request, size, address, failure);
  if (status == Status::kOk && watched()) tell(Change::kAllocated, page_map_.find(*address));
  return status;
}

Status DeviceHeap::serve_slow(const Request& request, uint64_t size, uint64_t* address, FailurePtr* failure) {
  if (forked()) {
    if (failure != nullptr) {
      *failure = std::make_unique<Failure>();
      (*failure)->text = "this process is a child of fork: CUDA can not be used in it";
    }
    return Status::kUnavailable;
  }
  const uint32_t slow = slow_.load(std::memory_order_relaxed);
  bool inject = false, persistent = false;
  if ((slow & kSlowInjection) != 0) inject = allocator_.inject(&persistent);
  uint64_t order = 0, bytes = 0;
  bool poll = false;
  {
    const Locked guard(lock_);
    requests_.store(requests_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    poll = (slow & kSlowPending) != 0 && ++since_poll_ >= kPollEvery;
    if (poll) since_poll_ = 0;
    Arena& arena = arena_for(request.stream, request.pool, size <= kSmallBytes);
    if (Block* hole = inject ? nullptr : find_hole(arena, size)) {
      Block* block = arena.take(hole, size, request.bytes);
      order = commit(block);
      note_need();
      *address = block->address;
      bytes = block->size;
    }
  }
  if (bytes == 0) return miss(request, size, inject, persistent, address, failure);
  trace_block(trace::Kind::kAllocate, order, *address, bytes, request.bytes, request.stream, request.pool);
  if (poll && !device_->capturing(request.stream)) poll_events();
  return Status::kOk;
}

// It is no program's any more. Returns its place in the order.
[[gnu::always_inline]] inline uint64_t DeviceHeap::begin_release(Block* block, FreedBlock* freed) {
  const Arena& arena = *arenas_[block->arena];
  *freed = {device_->id(), block->size, block->tag, arena.stream(), arena.pool()};
  usage_.free(block->size, block->tag, (block->shared & (kOtherStreams | kSpilled)) != 0);
  page_map_.clear(block->address);
  if ((block->shared & kSited) != 0) [[unlikely]]
    forget_site(block);
  return ++order_;
}

Status DeviceHeap::free(Block* block, uint64_t address, FreedBlock* freed) {
  if ((slow_.load(std::memory_order_relaxed) & (kSlowForked | kSlowWatched)) != 0) [[unlikely]] {
    if (forked()) return Status::kOk;
    tell_free(block, address);
  }
  uint64_t order = 0;
  std::optional<SharedRelease> shared;
  {
    const Locked guard(lock_);
    if (block->address != address || block->state != BlockState::kLive) [[unlikely]]
      return Status::kNotFound;
    order = begin_release(block, freed);
    if (block->shared == 0) [[likely]]
      arenas_[block->arena]->put_hole(block, order);
    else
      shared = release_shared(block, order);
  }
  if (shared) [[unlikely]]
    finish_release(block, address, order, *freed, std::move(*shared));
  else
    trace_block(trace::Kind::kFree, order, address, freed->bytes, freed->requested_bytes, freed->stream);
  return Status::kOk;
}

// Those that a block which is freed has to wait for: of the others, and what lies in another tier can only be
// unmapped when its own is past it too.
std::vector<StreamId> DeviceHeap::streams_of(Block* block) {
  auto uses = uses_.extract(block);
  std::vector<StreamId> streams = uses.empty() ? std::vector<StreamId>{} : std::move(uses.mapped());
  if ((block->shared & kSpilled) != 0) streams.push_back(arenas_[block->arena]->stream());
  return streams;
}

// Of a block that others use too, or that lies elsewhere.
DeviceHeap::SharedRelease DeviceHeap::release_shared(Block* block, uint64_t order) {
  SharedRelease release;
  release.pending = (block->shared & (kOtherStreams | kSpilled)) != 0;
  if ((block->shared & kRegistered) != 0) registered_.erase(block);
  release.descriptors = withdraw(block);
  release.streams = streams_of(block);
  block->shared = 0;
  if (release.pending)
    block->state = BlockState::kPending;
  else
    arenas_[block->arena]->put_hole(block, order);
  return release;
}

void DeviceHeap::finish_release(Block* block, uint64_t address, uint64_t order, const FreedBlock& freed,
                                SharedRelease release) {
  close_descriptors(release.descriptors);
  if (!release.pending)
    return trace_block(trace::Kind::kFree, order, address, freed.bytes, freed.requested_bytes, freed.stream);
  const uint64_t first = release.streams.empty() ? 0 : static_cast<uint64_t>(release.streams.front());
  trace_block(trace::Kind::kFreePending, order, address, freed.bytes, freed.requested_bytes, freed.stream,
              release.streams.size(), first);
  queue_pending(block, std::move(release.streams));
}

Status DeviceHeap::record_stream(Block* block, uint64_t address, StreamId stream) {
  if (forked()) return Status::kOk;
  const Locked guard(lock_);
  if (block->address != address || block->state != BlockState::kLive) return Status::kNotFound;
  if (arenas_[block->arena]->stream() == stream) return Status::kOk;
  std::vector<StreamId>& uses = uses_[block];
  if (std::find(uses.begin(), uses.end(), stream) == uses.end()) uses.push_back(stream);
  block->shared |= kOtherStreams;
  return Status::kOk;
}

BlockInfo DeviceHeap::info(const Block* block) const {
  BlockInfo out;
  out.device = device_->id();
  out.address = block->address;
  out.bytes = block->size;
  out.stream = arenas_[block->arena]->stream();
  out.pool = arenas_[block->arena]->pool();
  if (block->state == BlockState::kLive) out.use = BlockUse::kLive;
  if (block->state == BlockState::kPending) out.use = BlockUse::kPending;
  if (out.use != BlockUse::kFree) out.requested_bytes = block->tag;
  return out;
}

bool DeviceHeap::find_block(uint64_t address, BlockInfo* out) {
  if (forked()) return false;
  const Locked guard(lock_);
  for (auto& arena : arenas_) {
    const Segment* segment = arena->segment_of(address);
    if (segment == nullptr) continue;
    const Block* block = page_map_.find_below(address, segment->range.begin);
    if (block == nullptr) block = segment->first;
    while (block->end() <= address) block = block->next;
    if (block->state != BlockState::kLive && block->state != BlockState::kPending) return false;
    *out = info(block);
    return true;
  }
  return false;
}

void DeviceHeap::blocks(std::vector<BlockInfo>* out) {
  if (forked()) return;
  const Locked guard(lock_);
  for (auto& arena : arenas_)
    for (const Segment& segment : arena->segments())
      for (const Block* block = segment.first; block != nullptr; block = block->next)
        if (block->state != BlockState::kVoid) out->push_back(info(block));
}

}  // namespace spillway
