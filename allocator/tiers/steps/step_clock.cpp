#include "allocator/tiers/steps/step_clock.h"

namespace spillway {

void StepClock::mark(CUstream stream, StepBoundary boundary, const StepState& state) {
  const Locked guard(mutex_);
  if (marks_.size() >= kMostMarks) return;
  if (CUevent event = events_.record(stream)) marks_.push_back({event, boundary, state});
}

// A step in which blocks went for the first time, or came back, is neither with nor without.
std::optional<StepSample> StepClock::step_between(const Mark& begin, const Mark& end) const {
  const float ms = end.boundary == StepBoundary::kBegins ? -1 : events_.ms_between(begin.event, end.event);
  if (ms < 0) return std::nullopt;
  const StepState &from = begin.state, &to = end.state;
  StepSample step{.us = static_cast<double>(ms) * 1000 - (to.moved_us - from.moved_us),
                  .orders = static_cast<double>(to.order - from.order),
                  .link_us = to.link_us - from.link_us};
  step.before = !from.elsewhere && !to.elsewhere && from.moves == to.moves;
  const bool with = from.elsewhere == to.elsewhere && !step.before;
  return step.before || with ? std::optional(step) : std::nullopt;
}

std::optional<StepSample> StepClock::next() {
  const Locked guard(mutex_);
  while (marks_.size() >= 2 && table_.cuEventQuery(marks_[1].event) == CUDA_SUCCESS) {
    const Mark begin = marks_.front();
    marks_.pop_front();
    events_.put_back(begin.event);
    if (const auto step = step_between(begin, marks_.front())) return step;
  }
  return std::nullopt;
}

void StepClock::end() {
  const Locked guard(mutex_);
  for (const Mark& mark : marks_) events_.put_back(mark.event);
  marks_.clear();
  events_.end();
}

}  // namespace spillway
