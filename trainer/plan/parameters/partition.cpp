#include "trainer/plan/parameters/partition.h"

#include <algorithm>
#include <numeric>

namespace spillway::trainer {
namespace {

constexpr int64_t kPartAlignedTo = 16;  // elements: parts of a buffer begin where vectors can be read

int64_t rounded_up(int64_t value, int64_t to) {
  return (value + to - 1) / to * to;
}

// Inside a parameter a section begins at a multiple of it.
int64_t unit_of(const Numerics& numerics, const std::vector<int64_t>& sizes) {
  const bool has_rows = numerics.precision == Precision::kInt8 && sizes.size() == 2;
  if (!has_rows) return kQuantizationBlock;
  return numerics.optimizer == OptimizerKind::kAdamW8bit ? std::lcm(kQuantizationBlock, sizes[1]) : sizes[1];
}

Span common(int64_t begin, int64_t end, int64_t first, int64_t last) {
  const int64_t from = std::max(begin, first), to = std::min(end, last);
  return {from, std::max<int64_t>(0, to - from)};
}

}  // namespace

bool can_be_sharded(const Numerics& numerics) {
  return numerics.optimizer != OptimizerKind::kAdafactor;
}

Partition::Partition(const Numerics& numerics, const std::vector<Parameter>& table, uint32_t ranks,
                     std::optional<int64_t> bucket_bytes)
    : ranks_(ranks), whole_tiles_(!can_be_sharded(numerics)), sections_(table.size()) {
  for (const Parameter& parameter : table) {
    elements_.push_back(int64_t(parameter.elements()));
    units_.push_back(unit_of(numerics, parameter.sizes));
  }
  make_groups(table);
  const int64_t number = numerics.gradient_bytes(), bucket = bucket_bytes.value_or(bucket_bytes_of(ranks)),
                each = bucket / (int64_t{ranks} * number);
  const int64_t most = std::max(kQuantizationBlock, each / kQuantizationBlock * kQuantizationBlock);
  for (const std::vector<size_t>& group : groups_) {
    cut(group);
    rounds_.push_back(rounds_of(group, most));
    for (const Round& round : rounds_.back())
      buffer_bytes_ = std::max(buffer_bytes_, uint64_t(round.elements * ranks * number));
  }
  if (ranks == 1) buffer_bytes_ = 0;
}

void Partition::make_groups(const std::vector<Parameter>& table) {
  std::vector<size_t> of_no_layer, twins;
  const auto add = [this](int layer) { layers_.push_back(layer), groups_.emplace_back(); };
  for (size_t i = table.size(); i-- > 0;) {
    const int layer = table[i].layer;
    if (layer < 0) {
      std::vector<size_t>& group = table[i].is_twin ? twins : of_no_layer;
      group.insert(group.begin(), i);
      continue;
    }
    if (groups_.empty() || layers_.back() != layer || table[groups_.back().front()].part != table[i].part)
      add(layer);
    groups_.back().insert(groups_.back().begin(), i);
  }
  layer_groups_ = groups_.size();
  if (!twins.empty()) add(-1), groups_.back() = std::move(twins);
  add(-1);
  groups_.back() = std::move(of_no_layer);
  group_of_.resize(table.size());
  for (size_t group = 0; group < groups_.size(); ++group)
    for (const size_t i : groups_[group]) group_of_[i] = group;
}

// The nearest place of the group at which it may be cut.
int64_t Partition::boundary_near(const std::vector<size_t>& group, int64_t element) const {
  int64_t begin = 0;
  for (const size_t i : group) {
    const int64_t inside = element - begin;
    if (inside <= elements_[i]) {
      const int64_t below = inside / units_[i] * units_[i], above = std::min(below + units_[i], elements_[i]);
      return begin + (inside - below <= above - inside ? below : above);
    }
    begin += elements_[i];
  }
  return begin;
}

void Partition::cut(const std::vector<size_t>& group) {
  int64_t all = 0, begin = 0;
  for (const size_t i : group) all += elements_[i];
  std::vector<int64_t> cuts;
  for (int64_t rank = 0; rank < int64_t{ranks_}; ++rank)
    cuts.push_back(boundary_near(group, all / ranks_ * rank + all % ranks_ * rank / ranks_));
  cuts.push_back(all);
  for (const size_t i : group) {
    for (uint32_t rank = 0; rank < ranks_; ++rank) {
      Span section = common(begin, begin + elements_[i], cuts[rank], cuts[rank + 1]);
      section.begin -= begin;
      sections_[i].push_back(section);
    }
    begin += elements_[i];
  }
}

// Each rank's sections in order, in parts of `most` elements at most; more where a unit has more.
std::vector<Partition::Round> Partition::rounds_of(const std::vector<size_t>& group, int64_t most) const {
  std::vector<Round> rounds;
  for (uint32_t rank = 0; rank < ranks_; ++rank) {
    size_t round = 0;
    int64_t used = 0;
    for (const size_t i : group) {
      for (Span left = sections_[i][rank]; left.length > 0;) {
        int64_t length = std::min(left.length, most - used);
        if (length < left.length) length = length / units_[i] * units_[i];
        if (length <= 0 && used > 0) {
          ++round, used = 0;
          continue;
        }
        if (length <= 0) length = std::min(units_[i], left.length);
        if (rounds.size() <= round) rounds.push_back({.of_rank = Pieces(ranks_)});
        rounds[round].of_rank[rank].push_back({i, {left.begin, length}});
        used += length;
        rounds[round].elements = std::max(rounds[round].elements, rounded_up(used, kPartAlignedTo));
        left = {left.begin + length, left.length - length};
      }
    }
  }
  return rounds;
}

std::vector<std::vector<Span>> Partition::own(uint32_t rank) const {
  std::vector<std::vector<Span>> all(sections_.size());
  for (size_t i = 0; i < sections_.size(); ++i)
    if (sections_[i][rank].length > 0) all[i].push_back(sections_[i][rank]);
  return all;
}

std::vector<std::vector<Span>> Partition::updated(uint32_t rank, uint32_t zero) const {
  if (zero > 0) return own(rank);
  std::vector<std::vector<Span>> all(sections_.size());
  for (size_t i = 0; i < sections_.size(); ++i) {
    if (whole_tiles_)
      all[i] = {{0, elements_[i]}};
    else
      std::ranges::copy_if(sections_[i], std::back_inserter(all[i]),
                           [](const Span& section) { return section.length > 0; });
  }
  return all;
}

int64_t Partition::own_elements(uint32_t rank) const {
  int64_t all = 0;
  for (const std::vector<Span>& sections : sections_) all += sections[rank].length;
  return all;
}

}  // namespace spillway::trainer
