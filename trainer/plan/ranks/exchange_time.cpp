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
    double weights = 0;
    for (const size_t i : partition.parameters_of(group))
      weights += double(stored_bytes(shape.numerics, table[i]));
    const Group made = group_of(rounds, weights);
    if (partition.layer_of(group) < 0)
      rest_ = made;
    else
      layers_.push_back(made);
  }
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

ExchangeTime RankExchange::of(const Passes& passes) const {
  ExchangeTime time;
  if (ranks_ < 2) return time;
  const double times = zero_ < 2 ? 1 : passes.micro_batches;
  double sums = rest_.sum, gathers = 0, largest = 0, weights = 0;
  for (const Group& group : layers_) {
    sums += group.sum, gathers += group.gather, weights += group.sent_weights;
    largest = std::max(largest, group.gather);
    time.sent_bytes += times * group.sent_sum;
  }
  time.sent_bytes += times * rest_.sent_sum;
  if (zero_ < 3) {
    time.shown = times * (passes.sums_beside ? shown_behind(passes) : sums);
    time.hidden = times * sums - time.shown;
    if (zero_ == 0) return time;
    time.shown += gathers + rest_.gather;
    time.sent_bytes += weights + rest_.sent_weights;
    return time;
  }
  const double uses = layers_.empty() ? 0 : double(passes.gathers) / double(layers_.size());
  const double all = sums + uses * gathers;
  const double ends = largest + rest_.sum + (layers_.empty() ? 0 : layers_.back().sum);
  const double shown = std::max(all - passes.seconds, std::min(ends, all));
  time.shown = times * shown + rest_.gather;
  time.hidden = times * (all - shown);
  time.sent_bytes += times * uses * weights + rest_.sent_weights;
  return time;
}

}  // namespace spillway::trainer
