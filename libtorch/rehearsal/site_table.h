// What one device's allocator holds, by allocation site, and what it held at its highest. Knows nothing of
// LibTorch: events go in, figures come out. Every event costs O(1), however many sites there are.
//
// The composition at the peak is kept without copies: each new peak starts an epoch, and a site remembers
// what it held at the peak only when it first changes after it.
//
// Thread-safety: none; the probe's lock. Ownership: plain values. Errors: none; a free of an unknown address
// is passed over. Units: bytes.
#pragma once
#include <array>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "libtorch/rehearsal/timeline.h"

namespace spillway::rehearsal {

using Site = uint32_t;

// What the allocator says it holds just now, and the most that it has held since the program last reset its
// peaks. The peaks matter: a free is told after it is counted, so the level before it is never seen.
struct Levels {
  uint64_t allocated = 0, reserved = 0, peak_allocated = 0, peak_reserved = 0;
  uint64_t retries = 0;  // requests repeated with an emptied cache, since the program last reset the count
};

struct Holding {
  Site site = 0;
  uint64_t bytes = 0, blocks = 0;
  bool operator==(const Holding&) const = default;
};

// What a block is for, as an optimizer's step shows it.
enum class Kind : uint8_t { kOther, kParameter, kGradient, kOptimizerState };
constexpr size_t kKinds = 4;

struct Step {
  uint64_t last_event = 0;
  uint64_t allocated = 0, reserved = 0;  // the highest during the step
};

class Ledger {
 public:
  // `levels` are those before the event: what the allocator tells while it is still at work on it.
  void allocated(uint64_t address, uint64_t bytes, uint64_t stream, Site site, Levels levels);
  // The ordinal of the allocation that ends (from 1); 0: it is not known.
  uint64_t freed(uint64_t address, Levels levels);
  void segment(bool grows, uint64_t bytes, Levels levels);
  void failed(uint64_t bytes, Levels levels);
  // Without an event: before the figures are read, since the last event's effect is known only after it.
  void observe(Levels levels);
  void step_ended(Levels levels);
  // From now on, and at the peak if the block was there. An address where no block begins is passed over.
  void classify(uint64_t address, Kind kind);

  uint64_t events() const { return events_; }
  uint64_t last_stream() const { return last_stream_; }  // of the last allocation, by first use
  uint64_t stream_hash() const;
  uint64_t segments_freed() const { return segments_freed_; }
  uint64_t retries() const { return retries_; }    // of all time
  uint64_t failures() const { return failures_; }  // requests that could not be served
  Levels levels() const { return levels_; }
  uint64_t peak_allocated() const { return peak_allocated_; }
  uint64_t peak_reserved() const { return peak_reserved_; }
  uint64_t peak_event() const { return peak_event_; }
  uint64_t peak_step() const { return peak_step_; }
  uint64_t live_bytes() const { return live_bytes_; }  // the sum over the sites
  const std::vector<Step>& steps() const { return steps_; }
  const Timeline& timeline() const { return timeline_; }
  // Largest first; sites that held nothing are left out.
  std::vector<Holding> held_at_peak() const;
  std::vector<Holding> held_now() const;
  std::array<uint64_t, kKinds> bytes_by_kind_at_peak() const;

 private:
  enum Word : uint64_t { kAllocated = 1, kFreed = 2, kGrew = 3, kShrank = 4, kFailed = 5 };
  struct Entry {
    uint64_t bytes = 0, blocks = 0;
    uint64_t peak_bytes = 0, peak_blocks = 0;  // valid if `epoch` is the ledger's
    uint64_t epoch = 0;
  };
  struct Block {
    uint64_t bytes = 0, ordinal = 0;
    Site site = 0;
    Kind kind = Kind::kOther;
  };

  void begin_event(Levels levels);
  void mix(Word word);
  void mix(uint64_t value);
  // Each remembers the peak's value first.
  Entry& change(Entry& entry) const;
  Entry& change(Site site);
  Entry& change(Kind kind);
  void forget(const Block& block);

  std::vector<Entry> sites_;
  std::array<Entry, kKinds> kinds_;
  std::unordered_map<uint64_t, Block> blocks_;
  std::unordered_map<uint64_t, uint64_t> streams_;  // by first use
  std::vector<Step> steps_;
  Timeline timeline_;
  Levels levels_;
  Step step_;
  uint64_t last_stream_ = 0, epoch_ = 0, live_bytes_ = 0, segments_freed_ = 0;
  uint64_t retries_ = 0, failures_ = 0;
  uint64_t events_ = 0, allocations_ = 0, hash_ = 14695981039346656037u;
  uint64_t frees_ = 0;  // a sum over the frees since the last other event, for the hash
  uint64_t peak_allocated_ = 0, peak_reserved_ = 0, peak_event_ = 0, peak_step_ = 0;
  uint64_t peak_allocations_ = 0;  // there had been at the peak
};

}  // namespace spillway::rehearsal
