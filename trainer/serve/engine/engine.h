// Makes text for many requests at once: step by step, over one cache.
//
// A step that runs out of device memory, which no strategy of the ladder could give, has no effect: the
// youngest sequence is pre-empted, or the part of a prompt that a step computes is halved, and the step is
// done again. Greedy and seeded sequences have the tokens that they would have had.
//
// Thread-safety: one thread. Ownership: borrows the model; owns the cache. Errors: LibTorch's exceptions
// other than those of memory; a sequence's own end as its Finish.
#pragma once
#include <functional>
#include <map>

#include "trainer/serve/batching/scheduler.h"
#include "trainer/serve/engine/served_model.h"
#include "trainer/serve/engine/token_event.h"

namespace spillway::trainer::serve {

struct Job {
  std::vector<int64_t> prompt;  // of a model with an encoder what it reads
  uint32_t max_tokens = 16;
  Sampling sampling;
  std::optional<uint32_t> chances;  // how many of the likeliest tokens are told
  std::vector<int64_t> ends{};
  std::function<bool(const TokenEvent&)> on_token{};  // false: it has enough
  std::function<void(Finish)> on_end{};               // once, the last call
};

struct EngineStats {
  uint64_t steps = 0, tokens = 0, preemptions = 0, out_of_memory = 0;
  size_t running = 0, waiting = 0;
  uint32_t blocks = 0, free_blocks = 0;
};

class Engine {
 public:
  Engine(const ServedModel& model, uint32_t blocks, const BatchLimits& limits);

  // Its number. REQUIRES: it fits the cache alone.
  uint64_t submit(Job job);
  void cancel(uint64_t id);
  // False: there was nothing to do.
  bool step();
  // Steps until there is nothing to do.
  void run();

  EngineStats stats() const;

 private:
  std::optional<at::Tensor> computed(std::vector<Segment>* batch);  // nothing: no memory
  void lighten();
  void deliver(Sequence* sequence, std::span<const float> logits);
  std::optional<Finish> told(Sequence* sequence, const Job& job, std::span<const float> logits);
  void end(uint64_t id, Finish finish);

  const ServedModel& model_;
  BlockPool pool_;
  Scheduler scheduler_;
  KvCache cache_;
  std::map<uint64_t, Job> jobs_;
  std::map<uint64_t, uint64_t> given_;  // tokens that a sequence began with
  uint64_t next_id_ = 1;
  EngineStats stats_;
};

}  // namespace spillway::trainer::serve
