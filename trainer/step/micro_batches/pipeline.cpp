#include "trainer/step/micro_batches/pipeline.h"

#include <stdexcept>

namespace spillway::trainer {

void Pipeline::drop() {
  MicroBatchSchedule::drop();
  now_.clear();
}

at::Tensor Pipeline::run(uint32_t number, const Run& run) {
  at::Tensor loss;
  while (!loss.defined()) {
    admit(number, run);
    for (const auto& one : under_way_) advance(*one, run);
    if (under_way_.front()->is_done()) {
      loss = under_way_.front()->loss();
      under_way_.pop_front();
    }
    // All that computed are at a piece that hands over.
    for (const auto& one : under_way_) advance(*one, run);
  }
  forget_starts(number);
  return loss;
}

void Pipeline::admit(uint32_t number, const Run& run) {
  const uint32_t begins = next(number);
  if (begins >= run.count || under_way_.size() >= run.most || !knows_start(begins)) return;
  under_way_.push_back(run.begin(begins));
  if (draws_ && run.most > 1) now_.emplace(begins, starts_.at(begins));
}

// It is the end of the one before, as soon as that is known.
bool Pipeline::knows_start(uint32_t number) {
  if (!draws_ || starts_.contains(number)) return true;
  if (under_way_.empty()) return save(number), true;
  const MicroBatch& before = *under_way_.back();
  const auto distance = distances_.find(before.rows());
  if (!before.is_forward())
    starts_.emplace(number, now_.at(before.number()));
  else if (distance != distances_.end())
    starts_.emplace(number, starts_.at(before.number()).further(devices_[0], distance->second));
  else
    return false;
  return true;
}

void Pipeline::advance(MicroBatch& one, const Run& run) {
  if (one.is_forward()) forward(one);
  if (one.is_forward()) return;
  run.before_backward(one);
  one.backward();
}

void Pipeline::forward(MicroBatch& one) {
  const auto random = now_.find(one.number());
  if (random == now_.end()) return one.forward();
  random->second.restore();
  one.forward();
  random->second = RandomState::of(devices_);
  if (!one.is_forward()) note_end(one);
}

void Pipeline::note_end(const MicroBatch& one) {
  const RandomState& end = now_.at(one.number());
  const auto next = starts_.find(one.number() + 1);
  if (next != starts_.end() && !next->second.draws_as(end, devices_[0]))
    throw std::logic_error("the forward of micro-batch " + std::to_string(one.number()) +
                           " drew another number of random numbers than the one before");
  if (const auto distance = end.distance_from(starts_.at(one.number()), devices_[0]))
    distances_[one.rows()] = *distance;
  if (one.number() > 0) now_.erase(one.number() - 1);
}

}  // namespace spillway::trainer
