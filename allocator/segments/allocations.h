// Segments that are allocations, of the driver's own or of a pool's own source: made for a request, and given
// back when they are idle; see PoolMemory.
//
// The driver is asked like for pages. A source may need locks that a thread with a waiting request holds, so
// it is asked, and given back to, without any lock of Spillway's, that of the running handler included:
// `make` sets the quota aside, and `ask` takes the segment then.
//
// Thread-safety: any thread, without the heap's lock, in the device's context. Ownership: allocations are the
// arenas'. Errors: as Growth's; where something cannot be given back now, 0 bytes. Units: bytes.
#pragma once
#include "allocator/pages/reclaimer.h"
#include "allocator/request/miss.h"

namespace spillway {

class Allocations {
 public:
  Allocations(HeapState& heap, Drain& drain, Reclaimer& reclaimer)
      : heap_(heap), drain_(drain), reclaimer_(reclaimer) {}

  // Has the pool's own source, if it has one, say how large a segment it wants to be asked for: once, and
  // before the handler runs.
  void look_at_source(Miss& miss);
  // As large as is usual, or where the quota does not allow that, as large as the request. Of a pool with a
  // source, `miss.segment_bytes` are set aside.
  Served make(Miss& miss);
  // Asks the source for the segment that was set aside for, as often as it is called.
  Served ask(Miss& miss);

  // Gives idle ones back to the driver, of pools that give memory, or of one; returns their bytes.
  uint64_t release(uint64_t pool);
  // The same to the sources.
  uint64_t release_to_sources(uint64_t pool);
  // Of released pools that have no segment.
  void end_unused_sources();
  // What sources gave goes back whether it is idle or not: the heap ends.
  void end();

 private:
  struct Idle {
    Arena* arena;
    Block* busy;
    AddressRange given;
    PoolSettings::Source source;
  };
  // 0: of a source that cannot be asked, because a handler runs, or the pool was released meanwhile.
  uint64_t usual(const Miss& miss);
  bool set_aside(Miss& miss, uint64_t bytes);
  Served make(Miss& miss, uint64_t bytes);
  Served ask_driver(Miss& miss, uint64_t bytes);
  Served ask_source(Miss& miss);
  // Null, or why it cannot be used, for `miss.call`.
  const char* put_to_use(Miss& miss, AddressRange given);
  Served failed(Miss& miss, CUresult result, const char* call);
  // Where blocks begin in it, so that they are found.
  bool prepare(const Miss& miss, AddressRange range);
  // Whether its pool still has that source, and no block of the device lies there already.
  bool may_add(const Miss& miss, AddressRange given) SPILLWAY_REQUIRES(heap_.lock);
  bool add(Miss& miss, AddressRange given);
  std::vector<Idle> take_idle(uint64_t pool, bool of_sources);
  bool free(const Idle& idle);
  void free_to_source(const Idle& idle);
  uint64_t give_back(const std::vector<Idle>& idle);

  HeapState& heap_;
  Drain& drain_;
  Reclaimer& reclaimer_;
};

}  // namespace spillway
