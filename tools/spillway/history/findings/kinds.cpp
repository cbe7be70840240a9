#include "tools/spillway/history/findings/kinds.h"

#include <algorithm>
#include <functional>
#include <map>

#include "tools/spillway/history/names.h"

namespace spillway::tools {
namespace {

constexpr size_t kMostSizes = 3;

bool is_of_backward(const StackFrame& frame) {
  return frame.function.starts_with("backward of ") || frame.function.find("Backward") != frame.function.npos;
}

// A module that is made, moved or converted.
bool is_of_model(const StackFrame& frame) {
  return frame.function == "__init__" || frame.file.ends_with("torch/nn/modules/module.py");
}

// A forward pass that a checkpoint repeats within the backward pass has both kinds of frames, and its memory
// is activations all the same. An optimizer calls no module.
Purpose purpose_of(const std::vector<StackFrame>& frames) {
  bool forward = false, model = false, python = false, backward = false;
  for (const StackFrame& frame : frames) {
    if (!is_python(frame)) {
      backward |= is_of_backward(frame);
      continue;
    }
    if (frame.file.find("torch/optim/") != frame.file.npos) return Purpose::kOptimizer;
    python = true;
    forward |= frame.function == "forward";
    model |= is_of_model(frame);
  }
  if (forward) return Purpose::kForward;
  if (backward) return Purpose::kBackward;
  if (model) return Purpose::kModel;
  return python ? Purpose::kOther : Purpose::kUnknown;
}

class Purposes {
 public:
  explicit Purposes(const MemoryHistory& history) : history_(history), known_(history.stacks.size()) {}
  Purpose of(const HeldBlock& block) {
    if (block.stack == 0) return of_no_stack(block);
    auto& known = known_[block.stack];
    if (!known) known = purpose_of(history_.stacks[block.stack]);
    return *known;
  }

 private:
  // PyTorch takes a stack on every thread that has one; Spillway takes a sample, and a log has none.
  Purpose of_no_stack(const HeldBlock& block) const {
    const bool is_autograd = !history_.of_spillway && !history_.requests_only && block.born != kBeforeHistory;
    return is_autograd ? Purpose::kBackward : Purpose::kUnknown;
  }

  const MemoryHistory& history_;
  std::vector<std::optional<Purpose>> known_;
};

struct Tally {
  uint64_t bytes = 0, blocks = 0;
  std::map<uint64_t, uint64_t> of_size;  // blocks
};

std::vector<SizeShare> largest_sizes(const Tally& tally) {
  std::vector<SizeShare> sizes;
  for (const auto& [bytes, blocks] : tally.of_size) sizes.push_back({bytes, blocks});
  std::ranges::stable_sort(sizes, std::ranges::greater(), &SizeShare::bytes);
  sizes.resize(std::min(kMostSizes, sizes.size()));
  return sizes;
}

}  // namespace

const char* purpose_name(Purpose purpose) {
  static constexpr const char* kNames[] = {"model",         "optimizer", "forward pass",
                                           "backward pass", "other",     "not known"};
  return kNames[static_cast<size_t>(purpose)];
}

std::vector<KindShare> kinds_at(const MemoryHistory& history, const Moment& moment) {
  Purposes purposes(history);
  std::map<Purpose, Tally> tallies;
  bool has_stacks = false;
  for (const HeldBlock& block : moment.blocks) {
    if (block.pending) continue;
    has_stacks |= block.stack != 0;
    Tally& tally = tallies[purposes.of(block)];
    tally.bytes += block.requested;
    ++tally.blocks;
    ++tally.of_size[block.requested];
  }
  const bool tells = has_stacks && (tallies.size() > 1 || !tallies.contains(Purpose::kUnknown));
  std::vector<KindShare> kinds;
  if (!tells) return kinds;
  for (const auto& [purpose, tally] : tallies)
    kinds.push_back({purpose, tally.bytes, tally.blocks, largest_sizes(tally)});
  std::ranges::stable_sort(kinds, std::ranges::greater(), &KindShare::bytes);
  return kinds;
}

}  // namespace spillway::tools
