#include "allocator/tiers/steps/step_clock.h"

#include <utility>

namespace spillway {

CUevent StepClock::record(CUstream stream) {
  CUevent event = nullptr;
  if (!spare_.empty()) {
    event = spare_.back();
    spare_.pop_back();
  } else if (table_.cuEventCreate(&event, CU_EVENT_DEFAULT) != CUDA_SUCCESS) {
    return nullptr;
  }
  if (table_.cuEventRecord(event, stream) == CUDA_SUCCESS) return event;
  spare_.push_back(event);
  return nullptr;
}

void StepClock::mark(CUstream stream, StepBoundary boundary, const StepState& state) {
  const Locked guard(mutex_);
  if (marks_.size() >= kMostMarks) return;
  if (CUevent event = record(stream)) marks_.push_back({event, boundary, state});
}

// A step in which blocks went for the first time, or came back, is neither with nor without.
std::optional<StepSample> StepClock::step_between(const Mark& begin, const Mark& end) const {
  float ms = 0;
  if (end.boundary == StepBoundary::kBegins ||
      table_.cuEventElapsedTime(&ms, begin.event, end.event) != CUDA_SUCCESS)
    return std::nullopt;
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
    spare_.push_back(begin.event);
    if (const auto step = step_between(begin, marks_.front())) return step;
  }
  return std::nullopt;
}

void StepClock::end() {
  const Locked guard(mutex_);
  for (const Mark& mark : marks_) spare_.push_back(mark.event);
  marks_.clear();
  for (CUevent event : std::exchange(spare_, {})) table_.cuEventDestroy(event);
}

}  // namespace spillway
