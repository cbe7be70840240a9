#include "trainer/serve/batching/scheduler.h"

#include <algorithm>

namespace spillway::trainer::serve {

uint64_t Scheduler::most_blocks(const Sequence& sequence) {
  return blocks_for(sequence.most_tokens) + blocks_for(sequence.source.size());
}

void Scheduler::add(std::unique_ptr<Sequence> sequence) {
  waiting_.push_back(std::move(sequence));
}

bool Scheduler::remove(uint64_t id) {
  const auto is_it = [id](const auto& sequence) { return sequence->id == id; };
  if (const auto found = std::ranges::find_if(running_, is_it); found != running_.end()) {
    release(found->get());
    running_.erase(found);
    return true;
  }
  return std::erase_if(waiting_, is_it) > 0;
}

bool Scheduler::grow(Sequence* sequence, uint64_t tokens) {
  while (sequence->blocks.size() < blocks_for(tokens)) {
    const auto block = pool_.take();
    if (!block) return false;
    sequence->blocks.push_back(*block);
  }
  return true;
}

void Scheduler::release(Sequence* sequence) {
  for (auto* blocks : {&sequence->blocks, &sequence->source_blocks}) {
    for (const uint32_t block : *blocks) pool_.give_back(block);
    blocks->clear();
  }
  sequence->cached = 0;
  sequence->source_cached = false;
}

void Scheduler::preempt_youngest() {
  release(running_.back().get());
  waiting_.push_front(std::move(running_.back()));
  running_.pop_back();
  ++preemptions_;
}

// False: the sequence itself was the youngest.
bool Scheduler::make_room(size_t* index, uint64_t tokens) {
  while (*index < running_.size()) {
    Sequence* sequence = running_[*index].get();
    if (grow(sequence, sequence->cached + tokens)) return true;
    preempt_youngest();
  }
  return false;
}

std::vector<Segment> Scheduler::next() {
  std::vector<Segment> batch;
  uint64_t budget = now_.prefill_tokens;
  const uint64_t preempted = preemptions_;
  for (size_t i = 0; i < running_.size(); ++i) {
    const uint64_t left = running_[i]->tokens.size() - running_[i]->cached;
    const uint64_t tokens = left == 1 ? 1 : std::min(left, budget);
    if (tokens == 0) continue;  // older prompts take this step
    if (left > 1) budget -= tokens;
    if (make_room(&i, tokens)) batch.push_back({running_[i].get(), tokens});
  }
  if (preemptions_ == preempted) join(&batch, &budget);
  std::ranges::stable_partition(batch, [](const Segment& segment) { return segment.tokens == 1; });
  return batch;
}

void Scheduler::join(std::vector<Segment>* batch, uint64_t* budget) {
  while (!waiting_.empty() && running_.size() < now_.sequences && *budget > 0) {
    Sequence* sequence = waiting_.front().get();
    const uint64_t needed = blocks_for(sequence->tokens.size()) + blocks_for(sequence->source.size());
    if (!running_.empty() && needed + running_.size() > pool_.free()) return;
    grow(sequence, sequence->tokens.size());
    while (sequence->source_blocks.size() < blocks_for(sequence->source.size()))
      sequence->source_blocks.push_back(*pool_.take());
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
    const uint64_t tokens = std::min<uint64_t>(sequence->tokens.size(), *budget);
    // An encoder reads its source whole.
    *budget -= std::min<uint64_t>(*budget, tokens + sequence->source.size());
    batch->push_back({sequence, tokens});
  }
}

void Scheduler::computed(const Segment& segment) {
  segment.sequence->cached += segment.tokens;
  segment.sequence->source_cached = !segment.sequence->source.empty();
}

void Scheduler::succeeded() {
  if (++quiet_ < kQuietSteps) return;
  quiet_ = 0;
  now_.sequences = std::min(most_.sequences, now_.sequences + 1);
  now_.prefill_tokens = std::min(most_.prefill_tokens, now_.prefill_tokens * 2);
}

Scheduler::Relief Scheduler::relieve() {
  quiet_ = 0;
  if (running_.size() > 1) {
    preempt_youngest();
    now_.sequences = static_cast<uint32_t>(running_.size());
    return Relief::kPreempted;
  }
  if (now_.prefill_tokens <= kLeastPrefill) return Relief::kNone;
  now_.prefill_tokens = std::max(kLeastPrefill, now_.prefill_tokens / 2);
  return Relief::kSmallerPrefill;
}

}  // namespace spillway::trainer::serve
