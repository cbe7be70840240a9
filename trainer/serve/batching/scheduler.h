// Continuous batching: which sequences compute which of their tokens in the next step.
//
// Sequences join and leave at each step. The oldest goes first, always. One joins when there are blocks for
// all tokens that it has, and a spare one for each that runs. A sequence that grows and finds no free block
// has the youngest pre-empted: its blocks are freed, and it waits, with what it has made, to be computed
// again from its first token on. So the oldest always goes on, and none is lost.
//
// A step that ran out of memory is lightened (`relieve`) and asked for again: nothing of it counts until
// `computed`. After kQuietSteps that succeeded the batch grows back.
//
// Thread-safety: one thread. Ownership: owns the sequences; a Segment borrows one, until the next call of
// `next`, `relieve` or `remove`. Errors: none.
#pragma once
#include <deque>
#include <memory>
#include <vector>

#include "trainer/serve/batching/block_pool.h"

namespace spillway::trainer::serve {

struct Sequence {
  uint64_t id = 0;
  std::vector<int64_t> source;  // what an encoder reads; empty for a decoder alone
  std::vector<int64_t> tokens;  // what the decoder was given, then what it made
  uint32_t most_tokens = 0;     // that `tokens` may become; more than it has
  // Of `tokens` and of the source, whose keys and values are in the blocks.
  uint64_t cached = 0;
  bool source_cached = false;
  std::vector<uint32_t> blocks, source_blocks;
};

// Tokens [cached, cached + tokens) of a sequence.
struct Segment {
  Sequence* sequence = nullptr;
  uint64_t tokens = 0;

  bool reaches_end() const { return sequence->cached + tokens == sequence->tokens.size(); }
};

struct BatchLimits {
  uint32_t sequences = 64;        // that run together
  uint32_t prefill_tokens = 512;  // of prompts, in one step; a longer prompt takes several
};

class Scheduler {
 public:
  static constexpr uint32_t kQuietSteps = 16, kLeastPrefill = kBlockTokens;

  Scheduler(BlockPool* pool, const BatchLimits& limits) : pool_(*pool), most_(limits), now_(limits) {}

  // Whether it could run if nothing else did.
  bool fits(const Sequence& sequence) const { return most_blocks(sequence) <= pool_.size(); }
  // REQUIRES: fits, tokens, and a larger id than all before it.
  void add(std::unique_ptr<Sequence> sequence);
  // It has ended. False: there is none.
  bool remove(uint64_t id);

  // The next step; empty when nothing waits or runs. Those of one token come first.
  std::vector<Segment> next();
  // After a step: each of its segments, before its sequence is given another token.
  static void computed(const Segment& segment);
  void succeeded();

  // How a step that ran out of memory was lightened.
  enum class Relief { kPreempted, kSmallerPrefill, kNone };
  Relief relieve();

  size_t waiting() const { return waiting_.size(); }
  size_t running() const { return running_.size(); }
  uint64_t preemptions() const { return preemptions_; }
  const BatchLimits& now() const { return now_; }

 private:
  static uint64_t most_blocks(const Sequence& sequence);
  bool grow(Sequence* sequence, uint64_t tokens);  // blocks for that many tokens in all; false: too few
  bool make_room(size_t* index, uint64_t tokens);
  void join(std::vector<Segment>* batch, uint64_t* budget);
  void release(Sequence* sequence);
  void preempt_youngest();

  BlockPool& pool_;
  const BatchLimits most_;
  BatchLimits now_;
  uint32_t quiet_ = 0;
  uint64_t preemptions_ = 0;
  // Both in order of their ids; all that run are older than all that wait.
  std::vector<std::unique_ptr<Sequence>> running_;
  std::deque<std::unique_ptr<Sequence>> waiting_;
};

}  // namespace spillway::trainer::serve
