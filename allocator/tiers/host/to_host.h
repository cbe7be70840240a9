// Pages go to host memory: copied to its homes, step by step, and exchanged behind each step's addresses
// while the next one is copied.
//
// Thread-safety: none; the moves are claimed, nothing uses them meanwhile, and `mappings_mutex` is held.
// Ownership: pages stay the caller's. Errors: a move that is not `done` has its old pages. Units: bytes,
// microseconds.
#pragma once
#include <memory>
#include <vector>

#include "allocator/heap_state.h"
#include "allocator/tiers/host/host_memory.h"
#include "allocator/tiers/host/move_progress.h"

namespace spillway {

class ToHost {
 public:
  ToHost(HeapState& heap, const HostMemory& memory, RecordMove record)
      : heap_(heap), device_(*heap.device), memory_(memory), record_(std::move(record)) {}

  // The next one, which has its memory. False: nothing goes any more after an error.
  bool add(Move& move);
  void finish();
  uint64_t copied_bytes() const { return copied_bytes_; }
  double copies_us() const { return copies_us_; }

 private:
  static AddressRange next_in(Progress& going, std::vector<driver::Page>* pages);
  void extend(const Part& part);
  void add_copies(const Part& part);
  void advance();
  bool take_out(Step& step);
  bool put_in(Step& step);
  void give_up(Step& step, CUresult result);

  HeapState& heap_;
  Device& device_;
  const HostMemory& memory_;
  const RecordMove record_;
  std::vector<std::unique_ptr<Progress>> goings_;
  Step next_, last_;
  bool stopped_ = false;
  uint64_t copied_bytes_ = 0;
  double copies_us_ = 0;
};

}  // namespace spillway
