// A simulated device with 32 MiB of a limit, whose blocks may go to the host.
#pragma once
#include <memory>
#include <vector>

#include "allocator/tiers/tiers.h"
#include "strategies/ladder/ladder.h"
#include "tests/allocator/simulated.h"
#include "tests/strategies/tiers/open_gate.h"

namespace spillway::testing {

class Spill : public SimulatedDevice {
 protected:
  void SetUp() override {
    SimulatedDevice::SetUp();
    with({.host_bytes = 256 * kMiB, .available = nullptr, .most_slowdown = 0});
    allocator->limit(kDevice, 32 * kMiB);
  }
  void TearDown() override {
    allocator->set_handler(nullptr);
    SimulatedDevice::TearDown();
  }
  void with(const SpillLimits& limits) {
    ladder = std::make_unique<Ladder>(*allocator);
    ladder->add(make_stitch());
    ladder->add(make_spill_to_host(*allocator, limits));
    ladder->set_gate(&gate);
    allocator->set_handler(ladder.get());
  }
  std::vector<uint64_t> blocks_of(uint64_t bytes, int count, StreamId stream = {}) {
    std::vector<uint64_t> blocks;
    blocks.reserve(static_cast<size_t>(count));
    for (int i = 0; i < count; ++i) blocks.push_back(get(bytes, stream));
    return blocks;
  }
  OneThreadsGate gate;
  std::unique_ptr<Ladder> ladder;
};

}  // namespace spillway::testing
