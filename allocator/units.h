// Types for what must not be mixed up. Bytes are `uint64_t` with the suffix `_bytes`, times `_us` or `_ns`.
#pragma once
#include <cstdint>

namespace spillway {

enum class DeviceId : int32_t {};
enum class StreamId : uint64_t {};  // the CUstream's value

// What a strategy leaves unchanged in the program's results; weaker guarantees compare greater.
enum class Guarantee : uint8_t {
  kBitExact = 0,          // the same bits as the undisturbed run
  kNumericallyEqual = 1,  // the same mathematics, another order of additions
  kStatisticsChange = 2,  // another training run, statistically
};

// Where the pages of a live block can lie.
// In a file (kNvme) nothing can use it.
enum class Tier : uint8_t { kDevice, kPeer, kHost, kNvme };

}  // namespace spillway
