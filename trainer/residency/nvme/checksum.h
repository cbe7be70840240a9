// The checksum of a block: XXH3 in 64 bits, of Yann Collet's xxHash. A changed bit goes unnoticed with a
// probability of 2^-64.
#pragma once
#include <cstddef>
#include <cstdint>

namespace spillway::trainer {

uint64_t block_checksum(const std::byte* data, size_t bytes);

}  // namespace spillway::trainer
