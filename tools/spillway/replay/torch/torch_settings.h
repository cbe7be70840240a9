// The settings of PyTorch's allocator that decide where a block is placed.
//
// Thread-safety: plain values. Errors: what is not understood is left at its default and named in `ignored`.
// Units: bytes.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace spillway::tools {

struct TorchSettings {
  bool expandable_segments = false;
  uint64_t max_split_bytes = UINT64_MAX;         // blocks of this size and more are not split
  uint64_t most_non_split_rounding = 20u << 20;  // how much larger such a block may be than its request
  uint64_t large_segment_bytes = 20u << 20;      // for requests of more than 1 and less than 10 MiB
  // Into how many parts a power of two is divided; 0: sizes are rounded up to 512. From 1 MiB on, by powers.
  std::array<uint32_t, 16> power_divisions{};
  std::vector<std::string> ignored;

  uint64_t rounded(uint64_t bytes) const;
};

// Of PYTORCH_ALLOC_CONF: "max_split_size_mb:128,roundup_power2_divisions:[256:1,>:4]".
TorchSettings parse_torch_settings(std::string_view text);

}  // namespace spillway::tools
