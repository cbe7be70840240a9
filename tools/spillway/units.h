// Bytes and times as people write and read them.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "allocator/request/verdict.h"

namespace spillway::tools {

inline constexpr const char* kSizesAccepted =
    "a number of bytes, or a number with kB, MB, GB, TB (powers of 1000) or KiB, MiB, GiB, TiB (powers of "
    "1024), "
    "such as 8GiB";

// "8GiB", "1.5 GB", "1048576" → bytes; nothing for any other text, for 0 and for more than 1 PiB.
std::optional<uint64_t> parse_size(std::string_view text);

using spillway::size_text;                         // "1.50 GiB", "512 B"
std::string exact_size_text(uint64_t bytes);       // "1.50 GiB (1610612736)"
std::string duration_text(uint64_t microseconds);  // "850 µs", "12.3 ms", "4.56 s", "2 h 7 min"
// "1 block", "2 blocks".
std::string count_text(uint64_t count, const char* one, const char* many);
std::string address_text(uint64_t address);  // "0x7f0000200000", "0"

}  // namespace spillway::tools
