#include "trainer/serve/forward/step_batch.h"

#include <algorithm>
#include <limits>

namespace spillway::trainer::serve {
namespace {

using Numbers = std::vector<int64_t>;

class Builder {
 public:
  Builder(at::Device device, at::ScalarType type) : device_(device), type_(type) {}

  void add(const Segment& segment) {
    const Sequence& sequence = *segment.sequence;
    for (uint64_t i = sequence.cached; i < sequence.cached + segment.tokens; ++i) {
      tokens_.push_back(sequence.tokens[i]);
      positions_.push_back(int64_t(i));
      slots_.push_back(slot(sequence.blocks, i));
    }
    if (segment.reaches_end()) last_.push_back(int64_t(tokens_.size()) - 1);
    if (!sequence.source.empty() && !sequence.source_cached) add_source(sequence);
  }

  // One token each of several sequences, or several of one.
  void add_group(std::span<const Segment> segments) {
    Group group{.first = int64_t(tokens_.size()),
                .sequences = int64_t(segments.size()),
                .tokens = int64_t(segments[0].tokens)};
    group.begins = group.tokens > 1 && segments[0].sequence->cached == 0;
    for (const Segment& segment : segments) add(segment);
    group.table = table(segments, &Sequence::blocks);
    const Numbers positions(positions_.begin() + group.first, positions_.end());
    const at::Tensor places =
        at::arange(group.table.size(1) * kBlockTokens, at::device(device_).dtype(at::kLong));
    group.distance = places - on_device(positions).view({group.sequences, group.tokens, 1});
    if (!segments[0].sequence->source.empty()) add_source_of(segments, &group);
    batch_.groups.push_back(std::move(group));
  }

  StepBatch batch() {
    batch_.tokens = on_device(tokens_).unsqueeze(0);
    batch_.positions = on_device(positions_);
    batch_.slots = on_device(slots_);
    batch_.last = on_device(last_);
    return std::move(batch_);
  }

 private:
  static int64_t slot(const std::vector<uint32_t>& blocks, uint64_t place) {
    return int64_t{blocks[place / kBlockTokens]} * kBlockTokens + int64_t(place % kBlockTokens);
  }

  at::Tensor on_device(const Numbers& numbers) const { return at::tensor(numbers, at::kLong).to(device_); }

  void add_source(const Sequence& sequence) {
    Numbers slots;
    for (uint64_t i = 0; i < sequence.source.size(); ++i) slots.push_back(slot(sequence.source_blocks, i));
    batch_.sources.push_back({on_device(sequence.source).unsqueeze(0), on_device(slots)});
  }

  at::Tensor table(std::span<const Segment> segments, std::vector<uint32_t> Sequence::* blocks) const {
    size_t most = 0;
    for (const Segment& segment : segments) most = std::max(most, (segment.sequence->*blocks).size());
    Numbers all;
    for (const Segment& segment : segments) {
      const auto& own = segment.sequence->*blocks;
      all.insert(all.end(), own.begin(), own.end());
      all.resize(all.size() + most - own.size());
    }
    return on_device(all).view({int64_t(segments.size()), int64_t(most)});
  }

  void add_source_of(std::span<const Segment> segments, Group* group) const {
    group->source_table = table(segments, &Sequence::source_blocks);
    Numbers lengths;
    for (const Segment& segment : segments) lengths.push_back(int64_t(segment.sequence->source.size()));
    const at::Tensor places =
        at::arange(group->source_table.size(1) * kBlockTokens, at::device(device_).dtype(at::kLong));
    const at::Tensor behind = places >= on_device(lengths).view({-1, 1, 1, 1});
    group->source_padding = at::zeros(behind.sizes(), at::device(device_).dtype(type_))
                                .masked_fill_(behind, -std::numeric_limits<float>::infinity());
  }

  const at::Device device_;
  const at::ScalarType type_;
  Numbers tokens_, positions_, slots_, last_;
  StepBatch batch_;
};

uint64_t blocks_of(const Segment& segment) {
  return segment.sequence->blocks.size() + segment.sequence->source_blocks.size();
}

// How many of the segments, each of one token and the longest first, attend in one call: padding is at most
// half of what they read.
size_t count_of_group(std::span<const Segment> segments, uint64_t most_gathered) {
  const uint64_t blocks = blocks_of(segments[0]);
  size_t count = 1;
  while (count < segments.size() && 2 * blocks_of(segments[count]) >= blocks &&
         (count + 1) * blocks * kBlockTokens <= most_gathered)
    ++count;
  return count;
}

StepBatch copied(const StepBatch& batch, at::Device device) {
  StepBatch copy;
  copy.slots = batch.slots.to(device);
  copy.groups = batch.groups;
  for (Group& group : copy.groups)
    for (at::Tensor* tensor : {&group.table, &group.distance, &group.source_table, &group.source_padding})
      if (tensor->defined()) *tensor = tensor->to(device);
  return copy;
}

}  // namespace

DeviceBatches::DeviceBatches(const StepBatch& first) : first_(first) {}

const StepBatch& DeviceBatches::on(at::Device device) const {
  if (device == first_.slots.device()) return first_;
  auto found = copies_.find(device.index());
  if (found == copies_.end()) found = copies_.emplace(device.index(), copied(first_, device)).first;
  return found->second;
}

StepBatch step_batch(std::vector<Segment>* segments, at::Device device, at::ScalarType type,
                     uint64_t most_gathered) {
  const auto is_single = [](const Segment& segment) { return segment.tokens == 1; };
  const auto prompts = std::ranges::stable_partition(*segments, is_single).begin();
  std::stable_sort(segments->begin(), prompts,
                   [](const Segment& a, const Segment& b) { return blocks_of(a) > blocks_of(b); });
  Builder builder(device, type);
  for (std::span<const Segment> left(segments->begin(), prompts); !left.empty();) {
    const size_t count = count_of_group(left, most_gathered);
    builder.add_group(left.first(count));
    left = left.subspan(count);
  }
  for (auto prompt = prompts; prompt != segments->end(); ++prompt) builder.add_group({prompt, 1});
  return builder.batch();
}

}  // namespace spillway::trainer::serve
