// One device's memory: arenas, pages, limit, pending frees, and the way of a request from a hit to the
// handler.
//
// Thread-safety: every public member may be called from any thread. `lock_` guards the tiling and the
// counters and is held for the hot path only; driver calls are made without it, on blocks that are busy and
// pages that are reserved, so that no other thread can take them. base/lock_order.h says which lock may be
// taken under which. Invariant at every release of `lock_`:
//   held = mapped pages + spare pages + what reservations hold.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "allocator/accounting/holders.h"
#include "allocator/allocator.h"
#include "allocator/pages/device.h"
#include "allocator/pages/quota.h"
#include "allocator/pages/reclaim.h"
#include "allocator/pages/remap.h"
#include "allocator/sharing/imports.h"
#include "allocator/streams/stream_events.h"
#include "allocator/tiers/bandwidth_model.h"
#include "allocator/tiers/file_buffers.h"
#include "allocator/tiers/need_history.h"
#include "allocator/tiers/page_file.h"
#include "allocator/tiers/pinned_host_cache.h"
#include "allocator/tiers/spill.h"
#include "allocator/tiling/arena.h"
#include "allocator/tiling/page_map.h"
#include "allocator/tiling/spin_lock.h"
#include "base/mutex.h"

namespace spillway {

// What is set aside for one request: pages, budget to create pages from, and a place with a busy block.
class PageReservation {
 public:
  explicit PageReservation(uint64_t page_bytes) : page_bytes_(page_bytes) {}
  uint64_t bytes() const noexcept { return pages.size() * page_bytes_ + promised_bytes; }

  std::vector<CUmemGenericAllocationHandle> pages;
  uint64_t promised_bytes = 0;  // counted as held, without pages
  Arena* arena = nullptr;
  Block* claim = nullptr;
  Placement placement;
  std::vector<AddressRange> voids;

 private:
  uint64_t page_bytes_;
};

// Reasons to leave the fast path, as bits.
enum Slow : uint32_t {
  kSlowForked = 1,     // a child of fork: no CUDA
  kSlowInjection = 2,  // a request may have to fail
  kSlowPending = 4,    // events to poll now and then
  kSlowLadder = 8,     // a request waits: holes that fit it are left to it
  kSlowWatched = 16,   // an observer is told of every change
  kSlowSpilled = 32,   // blocks lie in other tiers: what the device needs is followed
};

class DeviceHeap {
 public:
  DeviceHeap(Allocator& allocator, std::unique_ptr<Device> device, uint64_t order);
  ~DeviceHeap();
  DeviceHeap(const DeviceHeap&) = delete;
  DeviceHeap& operator=(const DeviceHeap&) = delete;

  Status allocate(const Request& request, uint64_t* address, FailurePtr* failure);
  Status allocate_at(const Request& request, uint64_t address);
  Status free(Block* block, uint64_t address, FreedBlock* freed);
  Status record_stream(Block* block, uint64_t address, StreamId stream);
  bool find_block(uint64_t address, BlockInfo* out);
  void blocks(std::vector<BlockInfo>* out);

  // `pool`: of which to give back idle pages; kEveryPool: of all that may.
  uint64_t give_back(uint64_t most_bytes, uint64_t pool = kEveryPool);
  Status set_pool(uint64_t pool, uint32_t flags);
  void set_limit(uint64_t bytes);
  Memory memory();
  DeviceUsage usage();
  void reset_totals();
  void reset_peaks();
  uint64_t requests() const { return requests_.load(std::memory_order_relaxed); }
  bool check_invariants(std::string* broken);

  void set_slow(uint32_t bits) { slow_.fetch_or(bits); }
  void clear_slow(uint32_t bits) { slow_.fetch_and(~bits); }
  bool forked() const { return (slow_.load(std::memory_order_relaxed) & kSlowForked) != 0; }
  bool watched() const { return (slow_.load(std::memory_order_relaxed) & kSlowWatched) != 0; }
  uint64_t order();
  void raise_order(uint64_t order);
  void write(trace::Record record);
  void sample_memory();
  bool peak_is_untold();  // to the trace

  bool wait_until_idle();

  // tiers/; see spill.h.
  void touch(Block* block, uint64_t address);
  uint64_t spilled_bytes(Tier tier);
  uint64_t pinned_host_cache_bytes() const { return pinned_host_cache_.bytes(); }
  uint64_t returnable_bytes();
  uint64_t unspill();
  void postpone_return();

  // tiers/registered.cpp: blocks of which the program says when it uses them; see Allocator.
  Status add_block(Block* block, uint64_t address, uint64_t bytes);
  Status touch_block(Block* block, uint64_t address, FailurePtr* failure);
  Status done_block(Block* block, uint64_t address);
  Status remove_block(Block* block, uint64_t address, FailurePtr* failure);

  // accounting/sites.cpp; see Allocator.
  Status set_site(Block* block, uint64_t address, uint64_t site, uint64_t bytes);
  std::vector<SiteHolding> holders();

  // tiers/peer_blocks.cpp: blocks' memory on other devices; see spill.h.
  Peers peers();
  uint64_t guest_room();
  uint64_t evict(DeviceId peer, uint64_t bytes, uint64_t most_host_bytes);

  // sharing/; see Allocator.
  Status share(Block* block, uint64_t address, SharedBlock* out, std::string* text);
  int shared_descriptor(uint64_t serial);
  Status map_shared(std::span<const SharedPage> pages, uint64_t* address, std::string* text);
  bool unmap_shared(uint64_t address);
  Status grant(DeviceId peer, std::string* text);

 private:
  enum class Served : uint8_t { kYes, kShort, kFailed };
  // What a block is asked for back.
  enum class Return : uint8_t { kFromFile, kFromAnywhere };
  class Waiting;
  // A request on its way after a miss.
  struct Miss {
    Request request;
    uint64_t size = 0;
    PageReservation reservation;
    bool injected = false, persistent = false;
    bool refused = false;  // the driver had no page left
    unsigned tries = 0;
    // For a block that comes back: pages are what it needs.
    Block* returning = nullptr;
    Block* block = nullptr;
    uint64_t address = 0, block_bytes = 0;
    Arena* arena = nullptr;  // where its place will be, while its handler runs
    CUresult error = CUDA_SUCCESS;
    const char* call = "";
    bool served() const { return block != nullptr; }
    bool waits() const { return arena != nullptr; }
  };
  struct IdleRange {
    Arena* arena;
    Block* busy;
    AddressRange range;
    bool unmapped = false;
    std::vector<CUmemGenericAllocationHandle> pages;
  };
  struct Deferred {
    Block* block;
    std::vector<StreamId> streams;
  };
  struct Export {
    int descriptor = -1;
    uint64_t serial = 0;
    unsigned blocks = 0;  // live ones on the page that other processes may map
  };
  // Where a part of a live block lies.
  struct Piece {
    AddressRange range;
    CUmemGenericAllocationHandle handle = 0;
    Tier tier = Tier::kHost;
    DeviceId peer{};                         // kPeer
    std::vector<PageFile::Stored> stored{};  // kNvme: then there is no handle
    bool gone = false;                       // of a freed block: it is not mapped any more
    bool mapped = false;                     // kNvme: there are pages for its bytes again
  };
  // Its pieces are its end, the last that went in front.
  struct Spilled {
    std::vector<Piece> pieces;
    bool moving = false;  // its pages are being exchanged, or taken away for good
    bool freed = false;   // nothing uses it any more: it can go when it does not move
  };
  struct Move {
    Block* block = nullptr;
    AddressRange range;
    Tier tier = Tier::kDevice, was = Tier::kDevice;
    DeviceId peer{};  // where `tier` is kPeer
    std::vector<driver::Page> from{}, to{};
    std::vector<PageFile::Stored> stored{};  // where `tier` is kNvme
    bool done = false;
  };
  struct Shortfall {
    Placement place;
    uint64_t bytes;
  };
  using Exports = std::unordered_map<CUmemGenericAllocationHandle, Export>;
  struct Idle {
    uint64_t drained = 0, all = 0;
  };

  // heap.cpp: hits and frees.
  Status allocate_slow(const Request& request, uint64_t size, uint64_t* address, FailurePtr* failure);
  Status serve_slow(const Request& request, uint64_t size, uint64_t* address, FailurePtr* failure);
  Arena& arena_for(StreamId stream, uint64_t pool, bool small) SPILLWAY_REQUIRES(lock_);
  Arena& new_arena(StreamId stream, uint64_t pool, bool small) SPILLWAY_REQUIRES(lock_);
  uint32_t flags_of(uint64_t pool) const SPILLWAY_REQUIRES(lock_);
  uint64_t pool_size(const Request& request);
  // `waits`: for the request that free blocks are kept for.
  Block* find_hole(Arena& arena, uint64_t size, bool waits = false) SPILLWAY_REQUIRES(lock_);
  uint64_t kept_bytes(const Arena& arena, bool waits) const SPILLWAY_REQUIRES(lock_);
  uint64_t commit(Block* block) SPILLWAY_REQUIRES(lock_);
  // What is left to do, without the lock, for a block that others use too or that lies elsewhere.
  struct SharedRelease {
    bool pending = false;
    std::vector<int> descriptors;
    std::vector<StreamId> streams;
  };
  uint64_t begin_release(Block* block, FreedBlock* freed) SPILLWAY_REQUIRES(lock_);
  SharedRelease release_shared(Block* block, uint64_t order) SPILLWAY_REQUIRES(lock_);
  void finish_release(Block* block, uint64_t address, uint64_t order, const FreedBlock& freed,
                      SharedRelease release);
  std::vector<StreamId> streams_of(Block* block) SPILLWAY_REQUIRES(lock_);
  void forget_site(Block* block) SPILLWAY_REQUIRES(lock_);
  void trace_block(trace::Kind kind, uint64_t order, uint64_t address, uint64_t bytes, uint64_t requested,
                   StreamId stream, uint64_t value = 0, uint64_t detail = 0);
  BlockInfo info(const Block* block) const SPILLWAY_REQUIRES(lock_);
  BlockInfo info_now(const Block* block);

  // accounting/observer.cpp, without lock_.
  void tell(Change change, const Block* block);
  void tell_free(Block* block, uint64_t address);
  void tell_pages(Change change, const Arena& arena, AddressRange range);

  // request/: growth and the handler.
  Status miss(const Request& request, uint64_t size, bool injected, bool persistent, uint64_t* address,
              FailurePtr* failure);
  Served serve(Miss& miss);
  // Its place in the order, or nothing: no hole fits.
  std::optional<uint64_t> take_hole(Miss& miss, Arena& arena) SPILLWAY_REQUIRES(lock_);
  void trace_served(const Miss& miss, uint64_t order);
  bool serve_from_holes(Miss& miss, Arena** arena);
  bool serve_from_large_holes(Miss& miss);
  bool claim_place(Miss& miss);
  bool plan_and_claim(Miss& miss, Arena& arena) SPILLWAY_REQUIRES(lock_);
  static bool lends_to(const Arena& arena, const Miss& miss);
  bool borrow(Miss& miss);  // from a pool that lends its free blocks
  Served serve_returning(Miss& miss);
  Served create_promised(Miss& miss);
  Served fill_claim(Miss& miss);
  bool provision(Miss& miss);
  void take_promise_back(PageReservation& reservation);
  CUresult map_claim(Miss& miss, std::vector<driver::Page>* pages);
  void finish_claim(Miss& miss, const std::vector<driver::Page>& pages);
  void fill_voids(PageReservation& reservation, const std::vector<driver::Page>& pages)
      SPILLWAY_REQUIRES(lock_);
  uint64_t take_claim(Miss& miss) SPILLWAY_REQUIRES(lock_);
  void drop_claim(Miss& miss);
  void release_reservation(Miss& miss);

  // pages/remap_idle.cpp: idle pages where the driver has others.
  void move_idle(Miss& miss, Arena& arena);
  Block* idle_hole(const Miss& miss, const Arena& arena) SPILLWAY_REQUIRES(lock_);
  // tiling/single_handle.cpp: blocks that are allocations of the driver's.
  bool set_aside(Miss& miss);
  Served serve_single(Miss& miss, Arena& arena);
  uint64_t release_singles(uint64_t pool);
  uint64_t release_spare(uint64_t most_bytes);
  uint64_t short_of_single(const Miss& miss) const SPILLWAY_REQUIRES(lock_);

  uint64_t next_segment_bytes(const Arena& arena);
  CUresult add_segment(Arena& arena, uint64_t size, const char** call);
  Served refused(Miss& miss, CUresult result, const char* call);
  Status run_handler(Miss& miss, FailurePtr* failure);
  LadderOutcome handle(Waiting& waiting, const Miss& miss);
  LadderOutcome handle_with_kept_blocks(Miss& miss, const OomEvent& event);
  static Status outcome_of(const Miss& miss, LadderOutcome outcome);
  bool retry(Miss& miss);
  OomEvent make_event(const Miss& miss);
  uint64_t largest_extent(const Miss& miss);
  Status driver_failure(const Miss& miss, FailurePtr* failure);
  uint64_t pages_at_hand(const Miss& miss) const SPILLWAY_REQUIRES(lock_);
  uint64_t have(const Miss& miss) const SPILLWAY_REQUIRES(lock_);

  bool is_over_limit(const Miss& miss, uint64_t short_bytes);
  void look_beside_reserve();

  // streams/: blocks that wait for other streams.
  void queue_pending(Block* block, std::vector<StreamId> streams);
  // True: there is nothing to wait for.
  bool record_uses(Block* block, const std::vector<StreamId>& streams) SPILLWAY_REQUIRES(events_mutex_);
  void poll_events();
  bool wait_for_oldest();
  void retry_deferred() SPILLWAY_REQUIRES(events_mutex_);
  void complete(Block* block);
  void complete_claimed(Block* block);
  bool could_serve(const Miss& miss);
  uint64_t helpful_pending_bytes(const Miss& miss);
  uint64_t wait_for_events(const Miss& miss);

  // sharing/: pages of several processes, and of several devices.
  Status share_here(Block* block, uint64_t address, SharedBlock* out, std::string* text);
  std::vector<driver::Page> pages_of(const Block* block, uint64_t* offset) SPILLWAY_REQUIRES(lock_);
  void export_block(Block* block, std::span<const driver::Page> pages, Exports& made, SharedBlock* out)
      SPILLWAY_REQUIRES(lock_);
  CUresult export_page(CUmemGenericAllocationHandle page, int* descriptor);
  std::vector<int> withdraw(const Block* block) SPILLWAY_REQUIRES(lock_);
  static void close_descriptors(const std::vector<int>& descriptors);
  std::string check_exports() SPILLWAY_REQUIRES(lock_);
  void end_sharing();
  CUresult grant_everywhere(const CUmemAccessDesc& access)
      SPILLWAY_REQUIRES(imports_.mutex(), mappings_mutex_);

  // pages/reclaim.cpp: idle pages.
  ReclaimEstimate estimate_reclaim(const Miss& miss, uint64_t short_bytes, IdlePages what);
  uint64_t reclaim(Miss& miss, IdlePages what);
  Idle idle_bytes() SPILLWAY_REQUIRES(lock_);
  std::vector<IdleRange> take_idle(uint64_t bytes, bool drained_only, uint64_t pool = kEveryPool)
      SPILLWAY_REQUIRES(lock_);
  uint64_t unmap_victims(std::vector<IdleRange>& victims);
  uint64_t settle_victims(std::vector<IdleRange>& victims, std::vector<CUmemGenericAllocationHandle>* pages);
  uint64_t take_out(std::vector<IdleRange>& victims, std::vector<CUmemGenericAllocationHandle>* pages);
  bool anything_captures();
  CUresult drain_device();
  CUresult drain(StreamId stream);
  bool drain_one(std::vector<Arena*>* skipped);
  uint64_t release_pages(std::vector<CUmemGenericAllocationHandle>& pages);
  uint64_t reclaim_anything(PageReservation& reservation, uint64_t bytes);
  uint64_t hold(std::vector<IdleRange>& victims, PageReservation& reservation, IdlePages what);

  // tiers/: blocks in other tiers.
  void begin_history(Block* block) SPILLWAY_REQUIRES(lock_);
  double heat(const Block* block) const SPILLWAY_REQUIRES(lock_);
  void learn_under_pressure(bool failed);
  void read_clock();
  AddressRange movable(Block* block, Tier where) const SPILLWAY_REQUIRES(lock_);
  bool may_move(Block* block, const Pins& pins) const SPILLWAY_REQUIRES(lock_);
  std::vector<Block*> cold_blocks(Tier where) const SPILLWAY_REQUIRES(lock_);
  bool may_go(Block* block, Tier where) const SPILLWAY_REQUIRES(lock_);
  uint64_t spilled_here(Tier tier) const SPILLWAY_REQUIRES(lock_);
  double bytes_per_us(Tier tier, DeviceId peer) const SPILLWAY_REQUIRES(lock_);
  double slowdown(const std::vector<Move>& moves) const SPILLWAY_REQUIRES(lock_);
  std::vector<Move> choose_moves(uint64_t bytes, const SpillPlace& where, uint64_t most_bytes) const
      SPILLWAY_REQUIRES(lock_);
  void all_is_drained() SPILLWAY_REQUIRES(lock_);
  std::optional<Shortfall> shortfall(const Miss& miss) const SPILLWAY_REQUIRES(lock_);
  SpillEstimate estimate_spill(const Miss& miss, uint64_t short_bytes, const SpillPlace& where);
  SpillResult spill(Miss& miss, const SpillPlace& where);
  static uint64_t bytes_of(const std::vector<Move>& moves);
  void mark_moving(const std::vector<Move>& moves) SPILLWAY_REQUIRES(lock_);
  CUresult elsewhere(const SpillPlace& where, uint64_t bytes, CUmemGenericAllocationHandle* handle);
  void drop_elsewhere(const Piece& piece);
  std::vector<driver::Page> pages_in_range(const Block* block, AddressRange range);
  void remap(std::vector<Move>& moves, const std::function<bool(Move&)>& provide);
  struct Run;
  struct Begun;
  static std::vector<Move*> beside_neighbours(std::vector<Move>& moves, uint64_t most_bytes);
  std::optional<Begun> begin_run(Run run);
  std::vector<Begun> begin_runs(std::vector<Move>& moves, const std::function<bool(Move&)>& provide);
  void finish_run(Begun& begun);
  void leave_over(const Remap& exchange);
  void retry_left_over();
  void measure_copies(Tier tier, uint64_t bytes, double us);
  void record_move(const Move& move, CUresult result);
  void record_loss(const Move& move, CUresult result);
  SpillResult move_out(std::vector<Move>& moves, const SpillPlace& where,
                       std::vector<CUmemGenericAllocationHandle>* pages);
  uint64_t settle_out(const std::vector<Move>& moves, std::vector<CUmemGenericAllocationHandle>* pages);
  void add_piece(Block* block, const Piece& piece) SPILLWAY_REQUIRES(lock_);
  void remove_piece(const Piece& piece) SPILLWAY_REQUIRES(lock_);  // it is on nobody's account any more
  void uncount_guest(const Piece& piece) SPILLWAY_REQUIRES(lock_);
  void end_move(Block* block);
  uint64_t need() const SPILLWAY_REQUIRES(lock_);
  void note_need() SPILLWAY_REQUIRES(lock_);
  uint64_t returnable_here() const SPILLWAY_REQUIRES(lock_);
  std::vector<Move> choose_returns(uint64_t most_bytes) SPILLWAY_REQUIRES(lock_);
  static bool returns_by_itself(const Spilled& there);
  uint64_t unspill_moves(std::vector<Move>& moves);
  uint64_t move_in(std::vector<Move>& moves, PageReservation& pages);
  bool provide(Move& move, PageReservation& pages);
  uint64_t settle_in(const std::vector<Move>& moves, PageReservation& pages);
  // Of a request whose handler runs.
  bool fits(const Miss& miss) const SPILLWAY_REQUIRES(lock_);
  std::optional<Placement> place_for(const Miss& miss, uint64_t has, uint64_t idle) const
      SPILLWAY_REQUIRES(lock_);
  void take_place(Miss& miss, const Placement& place) SPILLWAY_REQUIRES(lock_);

  // tiers/unspill_shared.cpp: what is to be shared.
  Status unspill_to_share(Block* block, uint64_t address, FailurePtr* failure);
  Status return_pieces(Block* block, uint64_t address, FailurePtr* failure);
  Status return_piece(Block* block, const Piece& piece, FailurePtr* failure);

  // tiers/spill_to_file.cpp, unspill_from_file.cpp: pages in a file, and back.
  SpillResult store(std::vector<Move>& moves, const SpillPlace& where,
                    std::vector<CUmemGenericAllocationHandle>* pages);
  void write_all(std::vector<Move>& moves);
  int write_to_file(Move& move) SPILLWAY_REQUIRES(file_mutex_);
  void give_places(const std::vector<PageFile::Stored>& stored);
  Status unspill_from_file(Block* block, uint64_t address, FailurePtr* failure);
  Status claim_return(Block* block, uint64_t address, Return what, std::optional<Piece>* piece);
  StreamId stream_of(const Block* block);
  Status unspill_piece_from_file(Block* block, const Piece& piece, FailurePtr* failure);
  Status get_pages(Miss& miss, FailurePtr* failure);
  Status map_behind(Block* block, const Piece& piece, Miss& miss, FailurePtr* failure);
  Status fill_from_file(Block* block, const Piece& piece, Miss& miss, FailurePtr* failure);
  void unmap_behind(Block* block, const Piece& piece, Miss& miss);
  int read_from_file(const Piece& piece);
  void settle_unspilled(Block* block);

  bool claim_elsewhere(Block* block);
  bool unmap_elsewhere(Block* block);
  void note_gone(Piece& piece);
  bool leaves_elsewhere();
  void retry_elsewhere();
  bool forget_elsewhere(Block* block) SPILLWAY_REQUIRES(lock_);
  void forget_pages(const Block* block, const Piece& piece) SPILLWAY_REQUIRES(lock_);
  void end_spilling();
  void find_peers();
  bool direct(DeviceId peer) const SPILLWAY_REQUIRES(lock_);
  std::vector<Move> choose_guests(DeviceId peer, uint64_t bytes) SPILLWAY_REQUIRES(lock_);
  std::vector<Move> choose_guests_to_return(DeviceId peer, uint64_t bytes) SPILLWAY_REQUIRES(lock_);
  uint64_t move_on(std::vector<Move>& moves, uint64_t most_host_bytes);
  uint64_t settle_on(const std::vector<Move>& moves);
  void end_moves(const std::vector<Move>& moves);

  uint64_t pending_here() const SPILLWAY_REQUIRES(lock_);
  void leave_out_elsewhere(Memory* out) const SPILLWAY_REQUIRES(lock_);
  std::string check_arena(Arena& arena, Arena::Recount* count) SPILLWAY_REQUIRES(lock_);

  // Read by every request; changed rarely.
  std::atomic<uint32_t> slow_{0};
  Allocator& allocator_;
  PageMap& page_map_;
  const std::unique_ptr<Device> device_;
  const uint8_t device_index_;
  const uint64_t page_bytes_;

  alignas(64) Mutex<LockOrder::kHeap, SpinLock> lock_;
  StreamId last_stream_ SPILLWAY_GUARDED_BY(lock_){};
  uint64_t last_pool_ SPILLWAY_GUARDED_BY(lock_) = 0;
  Arena* last_arenas_[2] SPILLWAY_GUARDED_BY(lock_) = {nullptr, nullptr};  // large, small
  uint64_t order_ SPILLWAY_GUARDED_BY(lock_);
  std::atomic<uint64_t> requests_{0};  // written under lock_
  Usage usage_ SPILLWAY_GUARDED_BY(lock_);
  uint64_t peak_held_ SPILLWAY_GUARDED_BY(lock_) = 0;
  uint64_t sampled_bytes_ SPILLWAY_GUARDED_BY(lock_) = 0;  // held when the trace last saw it
  uint64_t sampled_peak_ SPILLWAY_GUARDED_BY(lock_) = 0;   // the highest that it was told of
  Quota quota_ SPILLWAY_GUARDED_BY(lock_);
  uint64_t mapped_bytes_ SPILLWAY_GUARDED_BY(lock_) = 0;
  uint64_t reserved_bytes_ SPILLWAY_GUARDED_BY(lock_) = 0;
  BlockSlab slab_ SPILLWAY_GUARDED_BY(lock_);
  std::vector<std::unique_ptr<Arena>> arenas_ SPILLWAY_GUARDED_BY(lock_);
  std::unordered_map<uint64_t, uint32_t> pools_ SPILLWAY_GUARDED_BY(lock_);  // flags of those that have any
  std::vector<CUmemGenericAllocationHandle> spare_ SPILLWAY_GUARDED_BY(lock_);  // pages mapped nowhere
  std::unordered_map<Block*, std::vector<StreamId>> uses_ SPILLWAY_GUARDED_BY(lock_);
  Holders holders_ SPILLWAY_GUARDED_BY(lock_);
  uint64_t maps_ SPILLWAY_GUARDED_BY(lock_) = 0;
  uint64_t unmaps_ SPILLWAY_GUARDED_BY(lock_) = 0;
  uint64_t moved_bytes_ SPILLWAY_GUARDED_BY(lock_) = 0;  // from holes, though the driver had pages
  spillway_incident_totals incidents_ SPILLWAY_GUARDED_BY(lock_){};
  unsigned since_poll_ SPILLWAY_GUARDED_BY(lock_) = 0;

  // Shared while the pages behind addresses change, from the driver's call until the tiling says so;
  // exclusive to change which devices may use them all. Taken before lock_.
  SharedMutex<LockOrder::kMappings> mappings_mutex_;
  Exports exports_ SPILLWAY_GUARDED_BY(lock_);
  Mutex<LockOrder::kShare> share_mutex_;  // one block is shared at a time
  Imports imports_;

  std::unordered_map<Block*, Spilled> spilled_ SPILLWAY_GUARDED_BY(lock_);
  struct Registered {
    uint64_t bytes = 0, uses = 0;
  };
  std::unordered_map<Block*, Registered> registered_ SPILLWAY_GUARDED_BY(lock_);
  uint64_t elsewhere_bytes_ SPILLWAY_GUARDED_BY(lock_) = 0;  // of all pieces
  uint64_t touches_ SPILLWAY_GUARDED_BY(lock_) = 0;          // of all blocks, as far as they are seen
  uint64_t learning_since_ SPILLWAY_GUARDED_BY(lock_) =
      0;  // place in the order from which uses are known; 0: they are not learnt
  NeedHistory needs_ SPILLWAY_GUARDED_BY(lock_);
  BandwidthModel bandwidth_ SPILLWAY_GUARDED_BY(lock_);
  Peers peers_ SPILLWAY_GUARDED_BY(lock_);

  PinnedHostCache pinned_host_cache_;
  std::atomic<uint32_t> moves_ended_{0};
  Mutex<LockOrder::kFileBuffers> file_mutex_;
  FileBuffers buffers_ SPILLWAY_GUARDED_BY(file_mutex_);
  Mutex<LockOrder::kLeftOver> left_over_mutex_;
  std::vector<Staging> left_over_ SPILLWAY_GUARDED_BY(left_over_mutex_);

  Mutex<LockOrder::kLadderOfDevice> ladder_mutex_;
  // Free blocks of this arena and size, and larger ones, are left to the request whose handler runs.
  struct Kept {
    const Arena* arena = nullptr;
    uint64_t bytes = 0;
  };
  Kept kept_ SPILLWAY_GUARDED_BY(lock_);

  Mutex<LockOrder::kPendingFrees> events_mutex_;
  StreamEvents stream_events_ SPILLWAY_GUARDED_BY(events_mutex_);
  std::vector<Deferred> deferred_ SPILLWAY_GUARDED_BY(events_mutex_);
};

// Whether a handler runs on this thread: then nothing may wait for memory.
extern thread_local bool inside_handler;

}  // namespace spillway
