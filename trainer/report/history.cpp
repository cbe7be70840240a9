#include "trainer/report/history.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>
#include <utility>

namespace spillway::trainer {
namespace {

// The first, the third, the fifth ... stay.
template <typename Value>
void keep_every_other(std::vector<Value>* values) {
  size_t kept = 0;
  for (size_t i = 0; i < values->size(); i += 2) (*values)[kept++] = (*values)[i];
  values->resize(kept);
}

void raise(std::vector<DevicePeaks>* most, const std::vector<DevicePeaks>& devices) {
  most->resize(std::max(most->size(), devices.size()));
  for (size_t i = 0; i < devices.size(); ++i) {
    DevicePeaks& device = (*most)[i];
    device.live = std::max(device.live, devices[i].live);
    device.reserved = std::max(device.reserved, devices[i].reserved);
    device.limit = devices[i].limit;
  }
}

// Losses may be no numbers after an overflow: those are passed over where there are others.
double least_of(double a, double b) {
  return std::fmin(a, b);
}
double most_of(double a, double b) {
  return std::fmax(a, b);
}

}  // namespace

void Sample::add(double value) {
  if (seen_++ % every_ != 0) return;
  values_.push_back(value);
  if (values_.size() < kMost) return;
  keep_every_other(&values_);
  every_ *= 2;
}

double Sample::median() const {
  if (values_.empty()) return 0;
  std::vector<double> sorted = values_;
  const auto middle = sorted.begin() + std::ptrdiff_t((sorted.size() - 1) / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

size_t RunHistory::use_of(const Plan& plan) {
  const auto found = std::ranges::find(plans_, plan, &PlanUse::plan);
  if (found != plans_.end()) return size_t(found - plans_.begin());
  plans_.push_back({.plan = plan,
                    .estimate = estimate(shape_, plan, rates_),
                    .steps = 0,
                    .tokens = 0,
                    .seconds = {},
                    .devices = {}});
  return plans_.size() - 1;
}

uint64_t RunHistory::estimated(size_t plan) const {
  return std::ranges::max(plans_[plan].estimate.device_peak_bytes);
}

StepPoint RunHistory::merged(const StepPoint& a, const StepPoint& b) const {
  StepPoint both = a;
  both.last = b.last;
  const double of_a = double(a.last - a.first + 1), of_b = double(b.last - b.first + 1);
  both.loss = (a.loss * of_a + b.loss * of_b) / (of_a + of_b);
  both.least_loss = least_of(a.least_loss, b.least_loss);
  both.most_loss = most_of(a.most_loss, b.most_loss);
  both.seconds += b.seconds;
  if (estimated(b.plan) > estimated(a.plan)) both.plan = b.plan;
  raise(&both.devices, b.devices);
  return both;
}

void RunHistory::add(const Step& step) {
  const Locked held(*lock_);
  const size_t plan = use_of(step.plan);
  ++plans_[plan].steps;
  plans_[plan].tokens += step.tokens;
  raise(&plans_[plan].devices, step.devices);
  if (step.undisturbed) plans_[plan].seconds.add(step.seconds);
  const StepPoint point{.first = step.number,
                        .last = step.number,
                        .plan = plan,
                        .loss = step.loss,
                        .least_loss = step.loss,
                        .most_loss = step.loss,
                        .seconds = step.seconds,
                        .devices = step.devices};
  if (!points_.empty() && points_.back().last - points_.back().first + 1 < steps_a_point_)
    points_.back() = merged(points_.back(), point);
  else
    points_.push_back(point);
  if (points_.size() < kMostPoints) return;
  for (size_t i = 0; i + 1 < points_.size(); i += 2) points_[i / 2] = merged(points_[i], points_[i + 1]);
  points_.resize(points_.size() / 2);
  steps_a_point_ *= 2;
}

void RunHistory::begin(const Shape& shape, const Machine& rates, const Plan& plan) {
  const Locked held(*lock_);
  shape_ = shape;
  rates_ = rates;
  use_of(plan);
}

void RunHistory::add(PlanMove move) {
  const Locked held(*lock_);
  ++all_moves_;
  if (move.asked && !move.asked->is_this_rank) ++moves_of_others_;
  if (move.action == "give_up" || (move.asked && !move.asked->why_all_end.empty())) use_of(move.to);
  if (moves_.size() == kMostMoves) moves_.pop_back();
  moves_.push_back(std::move(move));
}

void RunHistory::add(const EvaluationPoint& evaluation) {
  const Locked held(*lock_);
  last_evaluation_ = evaluation;
  if (seen_evaluations_++ % every_evaluation_ != 0) return;
  evaluations_.push_back(evaluation);
  if (evaluations_.size() < kMostPoints) return;
  keep_every_other(&evaluations_);
  every_evaluation_ *= 2;
}

std::vector<EvaluationPoint> RunHistory::evaluations() const {
  std::vector<EvaluationPoint> all = evaluations_;
  if (last_evaluation_ && (all.empty() || all.back().step != last_evaluation_->step))
    all.push_back(*last_evaluation_);
  return all;
}

std::shared_ptr<void> RunHistory::hold() const SPILLWAY_NO_THREAD_SAFETY_ANALYSIS {
  using std::chrono::milliseconds;
  for (milliseconds waited{0}; !lock_->try_lock(); waited += milliseconds{10}) {
    if (waited > milliseconds{1000}) return nullptr;
    std::this_thread::sleep_for(milliseconds{10});
  }
  return {lock_.get(), [lock = lock_](void*) SPILLWAY_NO_THREAD_SAFETY_ANALYSIS { lock->unlock(); }};
}

double RunHistory::operations() const {
  Plan plain;
  if (!plans_.empty()) plain.micro_batch = plans_.front().plan.micro_batch;
  return estimate(shape_, plain, rates_).time.operations;
}

}  // namespace spillway::trainer
