#include "trainer/plan/ranks/exchange_time.h"

#include <algorithm>

#include "trainer/plan/parameters/partition.h"
#include "trainer/plan/parameters/weight_storage.h"

namespace spillway::trainer {

RankExchange::RankExchange(const Shape& shape, const std::vector<Parameter>& table, const Machine& machine)
    : machine_(machine), ranks_(std::max(1u, shape.ranks)), zero_(shape.zero) {
  if (ranks_ < 2) return;
  const Partition partition(shape.numerics, table, ranks_);
  for (size_t group = 0; group < partition.groups(); ++group) {
    std::vector<double> rounds;
    for (const Partition::Round& round : partition.rounds(group))
      rounds.push_back(double(round.elements) * ranks_ * shape.numerics.gradient_bytes());
    if (rounds.empty()) continue;  // another stage's
    double weights = 0;
    for (const size_t i : partition.parameters_of(group))
      weights += double(stored_bytes(shape.numerics, table[i]));
    Group made = group_of(rounds, weights);
    made.parameters = partition.parameters_of(group);
    if (partition.layer_of(group) < 0)
      rest_.add(made);
    else
      layers_.push_back(std::move(made));
  }
}

void RankExchange::Group::add(const Group& more) {
  sum += more.sum, gather += more.gather;
  sent_sum += more.sent_sum, sent_weights += more.sent_weights;
  parameters.insert(parameters.end(), more.parameters.begin(), more.parameters.end());
}

// In the device's own memory: each byte is read and written.
double RankExchange::copies(double bytes) const {
  return std::max(machine_.launch_seconds, 2 * bytes / machine_.memory_bytes_per_second);
}

RankExchange::Group RankExchange::group_of(const std::vector<double>& rounds, double weights) const {
  const double others = double(ranks_ - 1) / ranks_;
  Group group;
  for (const double bytes : rounds) {
    const double ring = ring_seconds(machine_.rank_links, ranks_, bytes),
                 weight = weights / double(rounds.size());
    group.sum += copies(bytes) + ring + (zero_ == 0 ? ring + copies(bytes) : copies(bytes / ranks_));
    group.gather +=
        copies(weight / ranks_) + ring_seconds(machine_.rank_links, ranks_, weight) + copies(weight * others);
    group.sent_sum += (zero_ == 0 ? 2 : 1) * others * bytes;
  }
  group.sent_weights = others * weights;
  return group;
}

// Of the sums beside a backward, what is left when it ends; what belongs to no layer goes last.
double RankExchange::shown_behind(const Passes& passes) const {
  double done = 0;
  for (size_t i = 0; i < layers_.size(); ++i)
    done = std::max(done, i < passes.left.size() ? passes.left[i] : passes.seconds) + layers_[i].sum;
  return std::max(done, passes.seconds) + rest_.sum - passes.seconds;
}

// Of weights that each rank updates its share of: the layers' until stage 2, and what belongs to no layer.
double RankExchange::gathers() const {
  double all = rest_.gather;
  if (zero_ < 3)
    for (const Group& group : layers_) all += group.gather;
  return all;
}

double RankExchange::update_of(const Group& group, const Passes& passes) const {
  double all = 0;
  for (const size_t i : group.parameters)
    if (i < passes.updates.size()) all += passes.updates[i];
  return all;
}

// Of what is gathered beside updates, by how much the next forward is later: it waits for each part of a
// layer where it comes to it.
double RankExchange::shown_before(const Passes& passes) const {
  if (!passes.gathers_beside) return gathers();  // also what belongs to no layer: the next one waits for it
  double updated = update_of(rest_, passes), come = updated + rest_.gather;
  const double rest_there = come;
  std::vector<double> there;
  for (auto group = layers_.rbegin(); group != layers_.rend(); ++group) {
    updated += update_of(*group, passes);
    if (zero_ < 3) there.push_back(come = std::max(come, updated) + group->gather);
  }
  double later = std::max(0.0, rest_there - updated);
  for (size_t i = 0; i < there.size(); ++i)
    later = std::max(later, there[i] - updated - (i < passes.entered.size() ? passes.entered[i] : 0));
  return later;
}

void RankExchange::add_gathers(const Passes& passes, ExchangeTime* time) const {
  const double shown = shown_before(passes);
  time->shown += shown, time->hidden += gathers() - shown;
}

ExchangeTime RankExchange::of(const Passes& passes) const {
  ExchangeTime time;
  if (ranks_ < 2) return time;
  const double times = zero_ < 2 ? 1 : passes.micro_batches;
  double sums = rest_.sum, of_use = 0, largest = 0, weights = 0;
  for (const Group& group : layers_) {
    sums += group.sum, of_use += group.gather, weights += group.sent_weights;
    largest = std::max(largest, group.gather);
    time.sent_bytes += times * group.sent_sum;
  }
  time.sent_bytes += times * rest_.sent_sum;
  if (zero_ < 3) {
    time.shown = times * (passes.sums_beside ? shown_behind(passes) : sums);
    time.hidden = times * sums - time.shown;
    if (zero_ == 0) return time;
    time.sent_bytes += weights + rest_.sent_weights;
    add_gathers(passes, &time);
    return time;
  }
  const double uses = layers_.empty() ? 0 : double(passes.gathers) / double(layers_.size());
  const double all = sums + uses * of_use;
  const double ends = largest + rest_.sum + (layers_.empty() ? 0 : layers_.back().sum);
  const double shown = std::max(all - passes.seconds, std::min(ends, all));
  time.shown = times * shown;
  time.hidden = times * (all - shown);
  add_gathers(passes, &time);
  time.sent_bytes += times * uses * weights + rest_.sent_weights;
  return time;
}

}  // namespace spillway::trainer
