// Pages come back from host memory: device pages are mapped step by step behind the addresses, each once, and
// filled from the host memory's homes while the next step is mapped.
//
// Thread-safety: none; the moves are claimed, nothing uses them meanwhile, and `mappings_mutex` is held.
// Ownership: pages stay the caller's; what was got for a move is in its `to`. Errors: a move that is not
// `done` has its old pages. Units: bytes, microseconds.
#pragma once
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "allocator/heap_state.h"
#include "allocator/tiers/host/host_memory.h"
#include "allocator/tiers/host/move_progress.h"

namespace spillway {

class FromHost {
 public:
  // Gets device pages of so many bytes. False: there are none.
  using PageSource = std::function<bool(uint64_t bytes, std::vector<driver::Page>* out)>;

  FromHost(HeapState& heap, const HostMemory& memory, PageSource pages, RecordMove record)
      : heap_(heap),
        device_(*heap.device),
        memory_(memory),
        pages_(std::move(pages)),
        record_(std::move(record)) {}

  // The next one. False: nothing comes any more, after an error or without pages.
  bool add(Move& move);
  void finish();
  uint64_t copied_bytes() const { return copied_bytes_; }
  double copies_us() const { return copies_us_; }

 private:
  bool stopped() const { return error_ != CUDA_SUCCESS || no_pages_; }
  void advance();
  void get_pages(Step& step, std::vector<driver::Page>* pages);
  CUresult take_out(Step& step);
  CUresult put_in(Step& step, const std::vector<driver::Page>& pages);
  void add_copies(Step& step, const Part& part);
  void complete(Step& step);
  void restore(const Progress& coming);

  HeapState& heap_;
  Device& device_;
  const HostMemory& memory_;
  const PageSource pages_;
  const RecordMove record_;
  std::vector<std::unique_ptr<Progress>> comings_;
  uint64_t step_bytes_ = 0;
  Step next_, last_;
  std::deque<Step> under_way_;
  CUresult error_ = CUDA_SUCCESS;
  bool no_pages_ = false;
  uint64_t copied_bytes_ = 0;
  double copies_us_ = 0;
};

}  // namespace spillway
