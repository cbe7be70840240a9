#include "trainer/plan/ranks/kept_parameters.h"

#include <algorithm>

#include "trainer/plan/parameters/partition.h"
#include "trainer/plan/parameters/weight_storage.h"
#include "trainer/plan/schedule.h"

namespace spillway::trainer {
namespace {

uint32_t rank_with_most(const Partition& partition) {
  uint32_t rank = 0;
  for (uint32_t other = 1; other < partition.ranks(); ++other)
    if (partition.own_elements(other) > partition.own_elements(rank)) rank = other;
  return rank;
}

}  // namespace

KeptParameters::KeptParameters(const Shape& shape, const std::vector<Parameter>& table)
    : numerics_(shape.numerics), zero_(shape.ranks > 1 ? shape.zero : 0), weights_(table), gradients_(table) {
  const Partition partition(shape.numerics, table, std::max(1u, shape.ranks));
  const uint32_t rank = rank_with_most(partition);
  const std::vector<std::vector<Span>> spans = partition.updated(rank, shape.zero);
  for (size_t i = 0; i < table.size(); ++i) {
    updated_.push_back({table[i].sizes, spans[i]});
    const std::vector<int64_t> own{partition.sections(i)[rank].length};
    if (zero_ >= 3 && table[i].layer >= 0) weights_[i].sizes = own;
    if (zero_ >= 2) gradients_[i].sizes = own;
  }
  exchange_bytes_ = partition.buffer_bytes();
  if (zero_ >= 2) add_slots(table);
}

uint64_t KeptParameters::weight_bytes(size_t index) const {
  return stored_bytes(numerics_, weights_[index]);
}

// What belongs to no layer is added up at the end of a micro-batch.
uint64_t KeptParameters::gradient_bytes(size_t index) const {
  const uint64_t whole = zero_ >= 2 && gradients_[index].layer < 0 ? weights_[index].elements() : 0;
  return (gradients_[index].elements() + whole) * numerics_.gradient_bytes();
}

void KeptParameters::add_slots(const std::vector<Parameter>& table) {
  Slots largest;
  const std::vector<UnitBytes> units = unit_bytes(numerics_, table);
  for (const UnitBytes& unit : units)
    largest = {std::max(largest.weights, unit.weights), std::max(largest.gradients, unit.gradients)};
  const auto count = static_cast<uint32_t>(units.size());
  slots_.gradients = std::min(kSumSlots, count) * largest.gradients;
  if (zero_ >= 3) slots_.weights = std::min(kGatheredSlots, count) * largest.weights;
}

}  // namespace spillway::trainer
