#include "tools/spillway/history/findings/pools.h"

#include <algorithm>
#include <map>
#include <utility>

namespace spillway::tools {
namespace {

constexpr uint64_t kMuch = 16;  // part of what is reserved

class Pools {
 public:
  Pools(const Moment& moment, const PoolAndStream& asker) : moment_(moment) {
    for (const OwnedPiece& piece : moment.pieces)
      if (piece.owner != asker) pools_[piece.owner].held += piece.bytes;
    std::erase_if(pools_, [&](const auto& pool) { return pool.second.held < moment_.reserved / kMuch; });
    for (const HeldBlock& block : moment.blocks)
      if (PoolHolding* pool = pool_at(block.address)) pool->in_use += block.size;
  }

  void take(const HistoryEvent& event, StackNames* names) {
    const PoolAndStream owner{event.pool, event.stream};
    if (pools_.empty()) return;
    // Older versions of PyTorch do not say the pool of an event.
    const OwnedPiece* piece = nullptr;
    if (!pools_.contains(owner)) {
      piece = event.pool == PoolId() ? piece_at(event.address) : nullptr;
      if (piece == nullptr || !pools_.contains(piece->owner)) return;
    }
    PoolPlace& place = places_[piece != nullptr ? piece->owner : owner][names->of(event.stack)];
    place.bytes += event.size;
    ++place.blocks;
  }

  std::vector<PoolHolding> finish() {
    std::vector<PoolHolding> pools;
    for (auto& [owner, pool] : pools_) {
      std::tie(pool.pool, pool.stream) = owner;
      for (auto& [name, place] : places_[owner]) pool.places.push_back({name, place.bytes, place.blocks});
      std::ranges::stable_sort(pool.places, std::ranges::greater(), &PoolPlace::bytes);
      pools.push_back(std::move(pool));
    }
    std::ranges::stable_sort(pools, std::ranges::greater(), &PoolHolding::held);
    return pools;
  }

 private:
  const OwnedPiece* piece_at(uint64_t address) const {
    const auto after = std::ranges::upper_bound(moment_.pieces, address, {}, &OwnedPiece::address);
    if (after == moment_.pieces.begin()) return nullptr;
    const OwnedPiece& piece = *std::prev(after);
    return address - piece.address < piece.bytes ? &piece : nullptr;
  }
  PoolHolding* pool_at(uint64_t address) {
    const OwnedPiece* piece = piece_at(address);
    const auto pool = piece == nullptr ? pools_.end() : pools_.find(piece->owner);
    return pool == pools_.end() ? nullptr : &pool->second;
  }

  const Moment& moment_;
  std::map<PoolAndStream, PoolHolding> pools_;
  std::map<PoolAndStream, std::map<StackName, PoolPlace>> places_;
};

}  // namespace

std::vector<PoolHolding> other_pools(const DeviceHistory& device, const Moment& moment,
                                     const PoolAndStream& asker, StackNames* names) {
  Pools pools(moment, asker);
  for (size_t i = 0; i < moment.event; ++i)
    if (device.events[i].action == Action::kAllocate) pools.take(device.events[i], names);
  return pools.finish();
}

std::string pool_text(PoolId pool) {
  if (pool == PoolId()) return "default pool";
  if (pool.second == 0) return "pool " + std::to_string(pool.first);
  return "pool (" + std::to_string(pool.first) + ", " + std::to_string(pool.second) + ")";
}

}  // namespace spillway::tools
