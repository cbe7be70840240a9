// Pages go to host memory: copied to its homes, step by step, and exchanged behind each step's addresses
// while the next one is copied.
//
// Thread-safety: none; the moves are claimed, nothing uses them meanwhile, and `mappings_mutex` is held.
// Ownership: pages stay the caller's. Errors: a move that is not `done` has its old pages. Units: bytes,
// microseconds.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "allocator/heap_state.h"
#include "allocator/tiers/host/host_memory.h"
#include "allocator/tiers/host/step_copies.h"
#include "allocator/tiers/moving/neighbours.h"

namespace spillway {

class ToHost {
 public:
  using Record = std::function<void(const Move&, CUresult)>;
  ToHost(HeapState& heap, const HostMemory& memory, Record record)
      : heap_(heap), device_(*heap.device), memory_(memory), record_(std::move(record)) {}

  // The next one, which has its memory. False: nothing goes any more after an error.
  bool add(Move& move);
  void finish();
  uint64_t copied_bytes() const { return copied_bytes_; }
  double copies_us() const { return copies_us_; }

 private:
  struct Going {
    Move* move;
    uint64_t out_bytes = 0;  // from its beginning on: the old pages were taken out
    uint64_t in_bytes = 0;   // and of that, host memory is there
    bool given_up = false;
  };
  struct Part {
    Going* going;
    AddressRange range;
  };
  // Contiguous.
  struct Step {
    bool empty() const { return parts.empty(); }
    AddressRange range() const { return {parts.front().range.begin, parts.back().range.end}; }
    std::vector<Part> parts;
    StepCopies copies;
  };

  static AddressRange next_in(Going& going, std::vector<driver::Page>* pages);
  void extend(const Part& part);
  void add_copies(const Part& part);
  void advance();
  bool take_out(Step& step);
  bool put_in(Step& step);
  void give_up(Step& step, CUresult result);
  CUresult restore(const Going& going);

  HeapState& heap_;
  Device& device_;
  const HostMemory& memory_;
  const Record record_;
  std::vector<std::unique_ptr<Going>> goings_;
  Step next_, last_;
  bool stopped_ = false;
  uint64_t copied_bytes_ = 0;
  double copies_us_ = 0;
};

}  // namespace spillway
