// A device of 32 MiB in computing mode, with two others that take its cold blocks.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "allocator/tiers/tiers.h"
#include "strategies/ladder/ladder.h"
#include "tests/strategies/tiers/open_gate.h"
#include "tests/strategies/tiers/values.h"

namespace spillway::testing {

inline constexpr DeviceId kPeer{1};
inline constexpr uint64_t kBlock = 10 * kMiB;

class PeerSpill : public Values {
 protected:
  void SetUp() override {
    Values::SetUp();
    for (int device : {1, 2}) ASSERT_EQ(control->set_capacity(device, 256 * kMiB), CUDA_SUCCESS);
    allocator->limit(kDevice, 32 * kMiB);
    with({.host_bytes = 256 * kMiB, .peer_bytes = 256 * kMiB});
  }
  void TearDown() override {
    allocator->set_handler(nullptr);
    Values::TearDown();
  }
  void with(const SpillLimits& limits, void (*show)() = nullptr) {
    ladder = std::make_unique<Ladder>(*allocator);
    ladder->add(make_stitch());
    ladder->add(make_spill_to_peer(*allocator, limits, show));
    ladder->add(make_evict_guests(*allocator, limits));
    ladder->add(make_spill_to_host(*allocator, limits));
    ladder->set_gate(&gate);
    allocator->set_handler(ladder.get());
  }
  // Three of ten MiB on a device of 32, each with bytes of its own.
  std::vector<uint64_t> three_blocks() {
    std::vector<uint64_t> blocks;
    for (unsigned char i = 0; i < 3; ++i) {
      blocks.push_back(get(kBlock));
      fill(blocks.back(), kBlock, static_cast<unsigned char>(i + 1));
    }
    let_time_pass();
    return blocks;
  }
  void expect_values(const std::vector<uint64_t>& blocks) {
    for (size_t i = 0; i < blocks.size(); ++i)
      EXPECT_TRUE(holds(blocks[i], kBlock, static_cast<unsigned char>(i + 1))) << i;
  }
  uint64_t get_on(DeviceId device, uint64_t bytes) {
    CUcontext context = nullptr;
    table.cuDevicePrimaryCtxRetain(&context, static_cast<int>(device));
    table.cuCtxPushCurrent(context);
    uint64_t address = 0;
    failure.reset();
    status = allocator->allocate(device, {bytes, {}, 0}, &address, &failure);
    table.cuCtxPopCurrent(&context);
    table.cuDevicePrimaryCtxRelease(static_cast<int>(device));
    check();
    return address;
  }
  uint64_t charged(DeviceId device) {
    SpillwaySimulatorUsage usage{};
    EXPECT_EQ(control->usage(static_cast<int>(device), &usage), CUDA_SUCCESS);
    return usage.charged_bytes;
  }
  uint64_t on_host() { return spilled_bytes(*allocator, Tier::kHost); }
  std::string story() { return ladder->story_of(failure->event.incident); }

  OneThreadsGate gate;
  std::unique_ptr<Ladder> ladder;
};

}  // namespace spillway::testing
