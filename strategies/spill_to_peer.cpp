// The coldest blocks' memory goes to another device of the process, at the same address, where kernels can
// still use it: over NVLink, faster than host memory. Atomic operations must work there as at home.
#include <algorithm>
#include <array>
#include <atomic>

#include "allocator/tiling/block.h"
#include "strategies/spill_offer.h"

namespace spillway {
namespace {

// Of a device that nobody uses: what comes there later finds room at once.
constexpr uint64_t kShare = 4, kTaken = 3;

class SpillToPeer final : public Strategy {
 public:
  SpillToPeer(Allocator& allocator, const SpillLimits& limits, void (*show)())
      : allocator_(allocator), limits_(limits), show_(show) {}
  StrategyInfo info() const noexcept override {
    return {"spill_to_peer", Guarantee::kBitExact, kNeedsIdleDevice | kNeedsGate};
  }
  Offer offer(const PendingRequest& request) noexcept override {
    const OomEvent& event = request.event;
    const Peers peers = peers_of(allocator_, event.device);
    if (!peers.others) return {};
    const SpillPlace where = place(peers);
    const SpillEstimate estimate = request.estimate_spill(where);
    if (estimate.needed_bytes == 0) return {};
    if (peers.reachable.empty())
      return because(
          peers.without_atomics
              ? "no peer with native atomics: an atomic on the memory of one over PCIe loses updates"
              : "no peer access: the device can use no other one's memory");
    if (where.most_bytes == 0)
      return because(limits_.peer_bytes ? "no peer has room within its budget"
                                        : "no peer has room: without a budget only unused ones are taken");
    return offer_of(estimate, Tier::kPeer, limits_.most_slowdown);
  }
  Relief relieve(PendingRequest& request) noexcept override {
    const OomEvent& event = request.event;
    const SpillPlace where = place(peers_of(allocator_, event.device));
    if (where.most_bytes == 0) return {0, false, "no peer has room any more"};
    if (!limits_.peer_bytes && has_context(allocator_, where.peer)) {
      used_[index(where.peer)].store(true);
      return {0, false, "the program uses the peer itself"};
    }
    const bool first = guest_bytes(allocator_, where.peer) == 0;
    const SpillResult spilled = request.spill(where);
    const uint64_t there = guest_bytes(allocator_, where.peer);
    // A program that runs out of memory there asks those that show some, and would not ask this one.
    if (first && there != 0 && show_ != nullptr) show_();
    if (spilled.refused)
      of(where.peer).refuse(there, limits_.now());
    else
      of(where.peer).serve(there);
    return {spilled.bytes, false, "moved cold blocks to a peer device"};
  }

 private:
  // What a device took before it refused more; for a while.
  struct Refusal {
    uint64_t most_bytes(Backoff::Time now) const { return backoff.waits(now) ? most.load() : UINT64_MAX; }
    void refuse(uint64_t bytes, Backoff::Time now) {
      most.store(bytes);
      backoff.refused(now);
    }
    void serve(uint64_t bytes) {
      if (bytes > most.load()) backoff.served();
    }
    std::atomic<uint64_t> most{UINT64_MAX};
    Backoff backoff;
  };
  Refusal& of(DeviceId device) { return refusals_[index(device)]; }
  static size_t index(DeviceId device) { return static_cast<size_t>(device) % Allocator::kMaxDevices; }
  static Offer because(const char* why) { return refused(why, 0, 0); }

  // The one with the most room.
  SpillPlace place(const Peers& peers) const {
    SpillPlace best{.tier = Tier::kPeer, .part = true};
    for (const Peer& peer : peers.reachable) {
      const uint64_t room = room_bytes(peer);
      if (room <= best.most_bytes) continue;
      best.peer = peer.device;
      best.most_bytes = room;
    }
    return best;
  }

  uint64_t room_bytes(const Peer& peer) const {
    const uint64_t there = guest_bytes(allocator_, peer.device);
    const uint64_t most =
        std::min(budget_bytes(peer), refusals_[index(peer.device)].most_bytes(limits_.now()));
    const uint64_t room =
        std::min(most > there ? most - there : 0, guest_room_bytes(allocator_, peer.device));
    return room / kPageBytes * kPageBytes;
  }

  uint64_t budget_bytes(const Peer& peer) const {
    if (limits_.peer_bytes) return *limits_.peer_bytes;
    const bool unused = !allocator_.uses(peer.device) && !used_[index(peer.device)].load() &&
                        limits_.nobody_uses != nullptr && limits_.nobody_uses(peer.uuid);
    return unused ? peer.total_bytes / kShare * kTaken : 0;
  }

  Allocator& allocator_;
  const SpillLimits limits_;
  void (*const show_)();
  std::array<Refusal, Allocator::kMaxDevices> refusals_;
  // The program turned out to use them: to ask again each time would take quiescing.
  std::array<std::atomic<bool>, Allocator::kMaxDevices> used_{};
};

}  // namespace

std::unique_ptr<Strategy> make_spill_to_peer(Allocator& allocator, const SpillLimits& limits,
                                             void (*show)()) {
  return std::make_unique<SpillToPeer>(allocator, limits, show);
}

}  // namespace spillway
