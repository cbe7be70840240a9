// The pages behind live blocks' addresses change places: many moves at once, measured and recorded. Copies
// run beside the driver's other work.
//
// Thread-safety: any thread, without the heap's lock; the blocks are claimed (SpilledBlocks::begin_moves),
// and nothing uses them meanwhile. Ownership: pages stay the caller's. Errors: a move that is not `done` has
// its old pages; where the driver gives even these not back, the trace says so. Units: bytes, microseconds.
#pragma once
#include <atomic>
#include <functional>
#include <optional>
#include <vector>

#include "allocator/heap_state.h"
#include "allocator/pages/remap.h"
#include "allocator/tiers/block_releaser.h"
#include "allocator/tiers/host/from_host.h"
#include "allocator/tiers/moving/neighbours.h"

namespace spillway {

class Migration {
 public:
  // Gets the memory that a move goes to; false: there is none, and the move is left out.
  using Provide = std::function<bool(Move&)>;
  using PageSource = FromHost::PageSource;

  Migration(HeapState& heap, BlockReleaser& releaser, const HostMemory& host)
      : heap_(heap), releaser_(releaser), host_(host) {}

  // These set `done` in each; the tiling still has the old pages. `mappings_mutex` is held. Ranges that
  // were pinned since the moves were chosen are left out.
  void move_out(std::vector<Move>& moves, const Provide& provide);
  void move_in(std::vector<Move>& moves, const PageSource& pages);
  // Once for each block of `moves`; those that were freed meanwhile go now.
  void end(const std::vector<Move>& moves);
  void end(Block* block);
  // How many moves have ended; and waits until that has changed.
  uint32_t ended() const { return ended_.load(); }
  void wait_for_end(uint32_t seen) const { ended_.wait(seen); }

  std::vector<driver::Page> pages_in(const Block* block, AddressRange range);
  void measured(Tier tier, uint64_t bytes, double us);
  void record(const Move& move, CUresult result);
  // Staging addresses that the driver did not take back at once.
  void leave_over(const Remap& remap);
  void retry_left_over();

 private:
  struct Begun;
  std::vector<Move*> movable(std::vector<Move>& moves) const;
  void move_to_host(const std::vector<Move*>& moves, const Provide& provide);
  void move_from_host(const std::vector<Move*>& moves, const PageSource& pages);
  void remap(const std::vector<Move*>& moves, const Provide& provide);
  std::optional<Begun> begin_run(Neighbours run);
  std::vector<Begun> begin_runs(const std::vector<Move*>& moves, const Provide& provide);
  void finish_run(Begun& begun);
  void record_run(const Neighbours& run, const Remap& remap, CUresult result);

  HeapState& heap_;
  BlockReleaser& releaser_;
  const HostMemory& host_;
  std::atomic<uint32_t> ended_{0};
  Mutex<LockOrder::kLeftOver> left_over_mutex_;
  std::vector<Staging> left_over_ SPILLWAY_GUARDED_BY(left_over_mutex_);
};

}  // namespace spillway
