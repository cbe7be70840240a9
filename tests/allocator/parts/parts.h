// What the tests of the heap's parts share.
#pragma once
#include <cstdint>

namespace spillway {

inline constexpr uint64_t kPage = 2 << 20;
inline constexpr uint64_t kBase = uint64_t{1} << 40;  // of made-up addresses

}  // namespace spillway
