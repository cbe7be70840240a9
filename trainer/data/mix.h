// A random number of its place alone, so that any draw can be made without those before it.
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

}  // namespace spillway::trainer
