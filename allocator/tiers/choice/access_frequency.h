// How often blocks are read, as far as the program is seen to use them: which would be missed least.
//
// Thread-safety: guarded by the heap's lock. Its time is the place in the order of allocations and frees.
// Errors: none.
#pragma once
#include <algorithm>
#include <compare>
#include <cstdint>

#include "allocator/tiers/choice/block_access.h"
#include "allocator/tiling/block.h"

namespace spillway {

// What goes first is the least. Coldest first, and what was used a moment ago last. Of what was never seen in
// use the latest first: weights are older than activations.
struct Coldness {
  bool recent = false;
  double frequency = 0;
  uint64_t born = 0;

  auto operator<=>(const Coldness& other) const {
    if (recent != other.recent) return std::partial_ordering(recent <=> other.recent);
    if (frequency != other.frequency) return frequency <=> other.frequency;
    return std::partial_ordering(other.born <=> born);
  }
  bool operator==(const Coldness& other) const = default;
};

class AccessFrequency {
 public:
  static void begin(Block* block, uint64_t order) {
    block->touched = order << kPlaceBits;
    block->history = order << kUsesBits;
  }
  // How often the block is read by what was not counted yet, in parts of it. Operators that call others tell
  // of one use several times: of those at one place in the order, and with no launch between them, that with
  // the most counts.
  double touch(Block* block, uint64_t order, const BlockAccess& access) {
    ++touches_;
    const uint64_t now = tag(order, access.launches) | shares_of(block, access);
    const bool again = block->touched >> kReadsBits == now >> kReadsBits;
    if (again && now <= block->touched) return 0;
    const uint64_t more = (now & kMostAtOnce) - (again ? block->touched & kMostAtOnce : 0);
    block->touched = now;
    if ((block->history & kMostUses) + more > kMostUses) age(block, order);
    block->history += more;
    return static_cast<double>(more) / kShares;
  }

  // From this place on uses are known.
  bool is_learning() const { return learning_since_ != 0; }
  void learn(uint64_t order) { learning_since_ = order; }
  uint64_t learning_since() const { return learning_since_; }
  // By fewer uses no program is judged.
  bool knows_the_program() const { return touches_ >= kLeastTouches; }

  // Reads for each place in the order, since uses are learnt. What was never seen in use has the least.
  double of(const Block* block, uint64_t order) const {
    const uint64_t since = std::max(born(block), learning_since_);
    const double reads = static_cast<double>(block->history & kMostUses) / kShares;
    return (reads + 1) / static_cast<double>(order - since + 1);
  }
  // Used a moment ago: what is about to be queued may use it again.
  static bool recent(const Block* block, uint64_t order) { return order - place(block) < kRecent; }
  static uint64_t born(const Block* block) { return block->history >> kUsesBits; }
  Coldness coldness(const Block* block, uint64_t order) const {
    return {recent(block, order), of(block, order), born(block)};
  }

 private:
  static uint64_t place(const Block* block) { return block->touched >> kPlaceBits; }
  static uint64_t tag(uint64_t order, uint64_t launches) {
    return order << kPlaceBits | (launches & kLaunches) << kReadsBits;
  }
  // Up to whole shares: what is used is used.
  static uint64_t shares_of(const Block* block, const BlockAccess& access) {
    if (access.bytes == BlockAccess::kWhole) return kShares;
    const uint64_t share = std::max<uint64_t>(block->size / kShares, 1);
    return std::min(access.bytes / share + (access.bytes % share != 0), kMostAtOnce);
  }
  // Half of its uses in half of the time.
  void age(Block* block, uint64_t order) const {
    const uint64_t since = std::max(born(block), learning_since_);
    block->history = (order - (order - since) / 2) << kUsesBits | (block->history & kMostUses) / 2;
  }

  static constexpr uint64_t kRecent = 64;  // allocations and frees
  static constexpr uint64_t kLeastTouches = 64;
  static constexpr uint64_t kShares = 16;  // of a block, in which reads are counted
  // A trillion allocations and frees. Of launches at one place the last bits tell.
  static constexpr unsigned kReadsBits = 16, kPlaceBits = 24, kUsesBits = 24;
  static constexpr uint64_t kMostAtOnce = (1u << kReadsBits) - 1,
                            kLaunches = (1u << (kPlaceBits - kReadsBits)) - 1;
  static constexpr uint64_t kMostUses = (1u << kUsesBits) - 1;

  uint64_t touches_ = 0;         // of all blocks
  uint64_t learning_since_ = 0;  // 0: uses are not learnt
};

}  // namespace spillway
