#include "trainer/serve/engine/engine.h"

#include <algorithm>
#include <stdexcept>

#include "trainer/model/parts.h"

namespace spillway::trainer::serve {

Engine::Engine(const ServedModel& model, uint32_t blocks, const BatchLimits& limits)
    : model_(model), pool_(blocks), scheduler_(&pool_, limits), cache_(model.make_cache(blocks)) {}

uint64_t Engine::submit(Job job) {
  auto sequence = std::make_unique<Sequence>();
  sequence->id = next_id_++;
  if (model_.architecture().has_decoder()) {
    sequence->source = job.prompt;
    sequence->tokens = {t5::kPad};
  } else {
    sequence->tokens = job.prompt;
  }
  sequence->most_tokens = static_cast<uint32_t>(sequence->tokens.size()) + job.max_tokens;
  const uint64_t id = sequence->id;
  if (!scheduler_.fits(*sequence)) throw std::logic_error("the sequence is larger than the cache");
  given_[id] = sequence->tokens.size();
  jobs_.emplace(id, std::move(job));
  scheduler_.add(std::move(sequence));
  return id;
}

void Engine::cancel(uint64_t id) {
  if (jobs_.contains(id)) end(id, Finish::kCancelled);
}

void Engine::end(uint64_t id, Finish finish) {
  scheduler_.remove(id);
  given_.erase(id);
  const auto job = jobs_.extract(id);
  if (job.mapped().on_end) job.mapped().on_end(finish);
}

std::optional<at::Tensor> Engine::computed(std::vector<Segment>* batch) {
  try {
    return model_.logits(batch, &cache_);
  } catch (const c10::OutOfMemoryError&) {
    return std::nullopt;  // its tensors are gone where this is read
  }
}

void Engine::lighten() {
  ++stats_.out_of_memory;
  if (scheduler_.relieve() == Scheduler::Relief::kNone) end(jobs_.begin()->first, Finish::kNoMemory);
}

bool Engine::step() {
  std::vector<Segment> batch = scheduler_.next();
  if (batch.empty()) return false;
  const auto logits = computed(&batch);
  if (!logits) return lighten(), true;
  ++stats_.steps;
  std::vector<Sequence*> reached;
  for (const Segment& segment : batch) {
    if (segment.reaches_end()) reached.push_back(segment.sequence);
    Scheduler::computed(segment);
  }
  scheduler_.succeeded();
  for (size_t i = 0; i < reached.size(); ++i) {
    const at::Tensor row = (*logits)[int64_t(i)];
    deliver(reached[i], {row.const_data_ptr<float>(), size_t(row.numel())});
  }
  return true;
}

void Engine::run() {
  while (step()) {
  }
}

void Engine::deliver(Sequence* sequence, std::span<const float> logits) {
  const uint64_t id = sequence->id;
  if (const auto finish = told(sequence, jobs_.at(id), logits)) end(id, *finish);
}

std::optional<Finish> Engine::told(Sequence* sequence, const Job& job, std::span<const float> logits) {
  TokenEvent event;
  try {
    event.token = choose(logits, job.sampling, sequence->tokens.size() - given_.at(sequence->id));
    if (job.chances) event.chances = chances(logits, event.token, *job.chances);
  } catch (const std::domain_error&) {
    return Finish::kBroken;
  }
  sequence->tokens.push_back(event.token);
  ++stats_.tokens;
  const bool goes_on = !job.on_token || job.on_token(event);
  if (!goes_on || std::ranges::find(job.ends, event.token) != job.ends.end()) return Finish::kStop;
  if (sequence->tokens.size() >= sequence->most_tokens) return Finish::kLength;
  return std::nullopt;
}

EngineStats Engine::stats() const {
  EngineStats stats = stats_;
  stats.preemptions = scheduler_.preemptions();
  stats.running = scheduler_.running();
  stats.waiting = scheduler_.waiting();
  stats.blocks = pool_.size();
  stats.free_blocks = pool_.free();
  return stats;
}

}  // namespace spillway::trainer::serve
