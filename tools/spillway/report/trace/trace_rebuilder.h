// One device's blocks and pages, rebuilt from the records of a trace, one after the other.
//
// Thread-safety: none; used while one history is built. Ownership: the stacks and the failures are the
// caller's. Errors: a record that makes no sense is counted. Units: bytes, microseconds.
#pragma once
#include <map>
#include <unordered_map>

#include "tools/spillway/history/history.h"
#include "tools/spillway/history/moment.h"
#include "tools/spillway/report/address_ranges.h"
#include "tools/spillway/report/trace/place_blocks.h"
#include "tools/spillway/report/trace/trace_parts.h"

namespace spillway::tools {

class TraceRebuilder {
 public:
  struct Lacks {
    bool places = false;  // only some of the allocations have a place
    bool oldest = false;  // records are lost that came before the others
  };
  TraceRebuilder(const TraceFailures& failures, std::unordered_map<uint64_t, StackId>* stacks, Lacks lacks)
      : failures_(failures), stacks_(*stacks), lacks_(lacks) {}

  // Before `take`: what later records tell about all.
  void learn_time(const trace::Record& record) { clock_.take_in(record); }
  void learn(const trace::Record& record);
  // Room for the events of all the records: a list of millions that grows is there twice for a while.
  void expect_what_was_learnt() { out_.events.reserve(expected_events_); }
  void take(const trace::Record& record);
  void begin_step() { begin(&out_.step_events); }
  void begin_optimizer_step() { begin(&out_.optimizer_events); }
  DeviceHistory finish();
  uint64_t passed_over() const { return passed_over_; }
  uint64_t lost_frees() const { return lost_frees_; }

 private:
  struct Block {
    uint64_t bytes = 0, requested = 0, stream = 0;
    StackId stack = 0;
    size_t born = 0;  // the event that allocated it
    bool pending = false;
  };
  struct Sample {
    uint64_t live = 0, known = 0, freed_older = 0;
  };

  void allocate(const trace::Record& record);
  void name_site(const trace::Record& record);
  void name_asker(const trace::Record& record);
  void free(const trace::Record& record);
  void free_later(const trace::Record& record);
  void change_pages(const trace::Record& record);
  void fail(const trace::Record& record);
  void sample(uint64_t live) { sample_ = {live, known_, freed_older_}; }
  void change_held(const trace::Record& record);
  void end_overlapped(const trace::Record& record);
  void add(Action action, const trace::Record& record, uint64_t address, uint64_t size, StackId stack = 0);
  void forget(std::map<uint64_t, Block>::iterator block);
  // Steps without an event between them are one.
  void begin(std::vector<size_t>* steps) const {
    if (steps->empty() || steps->back() != out_.events.size()) steps->push_back(out_.events.size());
  }
  HistoryEvent* birth_of(const std::pair<const uint64_t, Block>& block);
  void place_blocks();
  PoolAndStream owner_of(uint64_t address) const;
  void add_segments(uint64_t begin, uint64_t end);
  void find_free_bytes();
  void add_blocks(HistorySegment* segment) const;

  const TraceFailures& failures_;
  std::unordered_map<uint64_t, StackId>& stacks_;
  const Lacks lacks_;
  std::vector<SampledAllocation> sampled_;
  TraceClock clock_;
  std::map<uint64_t, PoolAndStream> owner_from_;  // pages from which on it is known whose they are
  std::map<uint64_t, Block> blocks_;
  AddressRanges pages_;
  DeviceHistory out_;
  std::map<uint32_t, size_t> failed_;  // incident → its event
  std::vector<uint64_t> free_;         // at each event of a failure, as the allocator counted
  Sample sample_;
  uint64_t known_ = 0;        // requested bytes of the blocks that are live
  uint64_t freed_older_ = 0;  // of those that were allocated before the history
  uint64_t passed_over_ = 0, lost_frees_ = 0;
  size_t expected_events_ = 0;
};

}  // namespace spillway::tools
