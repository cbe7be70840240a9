// What a device achieves, measured at a run's start: a product, and copies to and from the host; and the
// host's processor, a sum.
//
// Takes two tenths of a second, 128 MiB of the host and at most half a GiB and an eighth of `bytes`, all of
// it given back. Draws no random number. What cannot be measured keeps its value in `machine`: on a simulated
// card time means nothing, and a small limit has no room for a product that is worth timing.
//
// Thread-safety: one thread. Ownership: none. Errors: none. Units: bytes.
#pragma once
#include "trainer/libtorch.h"
#include "trainer/plan/estimate.h"

namespace spillway::trainer {

// Where the numbers come from, for people.
enum class RatesFrom : uint8_t { kMeasured, kSimulatedCard, kNoRoom, kNoCard };
const char* name_of(RatesFrom from);

// The driver is the simulator's, whose time means nothing.
bool on_simulated_card();

// Of a card that was measured and another one. Sets `peer_bytes_per_second`.
void measure_peer_rate(at::Device device, at::Device peer, Machine* machine);

// What is measured with: the side of the square matrices, 0 where there is no room for any; and the bytes of
// each of two tensors, of which one is copied to the other. They are more than a cache of the device holds,
// where there is room for that.
struct RateSizes {
  int64_t side = 0;
  int64_t copied_bytes = 0;
};

// `bytes`: that a run may use of the device; 0: any number. `workspace`: what the library of products takes
// of them with its first one, and keeps.
RateSizes rate_sizes(uint64_t bytes, uint64_t workspace);

// `bytes`: as above. `type`: of the products' factors. Sets `flops`, `memory_bytes_per_second`,
// `host_bytes_per_second` and `host_memory_bytes_per_second`.
RatesFrom measure_rates(at::Device device, at::ScalarType type, uint64_t bytes, Machine* machine);

}  // namespace spillway::trainer
