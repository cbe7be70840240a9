// Random numbers of their place alone, so that any draw can be made without those before it.
#pragma once
#include <cstdint>

namespace spillway::trainer {

// SplitMix64: a good bijection of (seed, position).
constexpr uint64_t mix(uint64_t seed, uint64_t position) {
  uint64_t z = seed * 0x9e3779b97f4a7c15ull + position * 0xd1b54a32d192ed03ull + 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

// Where `position` stands in an order of [0, count) that `seed` chooses: each place is taken once. A Feistel
// network over two halves of at least as many bits, walked until it ends below `count`, of Black and Rogaway,
// "Ciphers with Arbitrary Finite Domains" (2002). REQUIRES: position < count.
constexpr uint64_t shuffled(uint64_t position, uint64_t count, uint64_t seed) {
  constexpr uint32_t kRounds = 4;
  uint32_t bits = 1;
  while (bits < 32 && (uint64_t{1} << (2 * bits)) < count) ++bits;
  const uint64_t mask = (uint64_t{1} << bits) - 1;
  do {
    for (uint32_t round = 0; round < kRounds; ++round) {
      const uint64_t left = position >> bits, right = position & mask;
      position = right << bits | (left ^ (mix(mix(seed, round), right) & mask));
    }
  } while (position >= count);
  return position;
}

}  // namespace spillway::trainer
