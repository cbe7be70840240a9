// A tile's states one behind the other, as they pass between the host, the device and a file; and what lies
// on an NVMe disk.
//
// The estimate counts with it, and trainer/optimizer/ lays out by it, so that the two agree.
//
// Thread-safety: pure functions. Errors: none. Units: bytes.
#pragma once
#include "trainer/plan/parameters/optimizer_state.h"

namespace spillway::trainer {

// Of a part, for kernels that read vectors; and of a record, for files that are read past the page cache.
inline constexpr uint64_t kPartAlignment = 512, kRecordAlignment = 4096;
// Of the host's memory for a disk, which has whole ones.
inline constexpr uint64_t kHugePage = uint64_t{2} << 20;
// Page-locked memory for records that are read ahead or written behind: 64 blocks of 1 MiB.
inline constexpr uint64_t kNvmeBuffers = uint64_t{64} << 20;
// A parameter that keeps fewer stays on the host: its read would be a small one. benchmarks/nvme has the
// measure.
inline constexpr uint64_t kLeastOnNvme = uint64_t{1} << 20;

inline uint64_t aligned(uint64_t bytes, uint64_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

// Of what belongs to so many of the parameter's elements. REQUIRES: it is read in tiles.
inline int64_t entries_of(const StateTensor& state, int64_t elements) {
  return (elements + state.elements_per_entry - 1) / state.elements_per_entry;
}
inline uint64_t part_bytes(const StateTensor& state, int64_t elements) {
  return uint64_t(entries_of(state, elements)) * (state.is_codes ? 1 : 4);
}
// All states of so many elements that are read in tiles, each at an aligned place.
uint64_t tile_bytes(const std::vector<StateTensor>& states, int64_t elements);
uint64_t record_bytes(const std::vector<StateTensor>& states, int64_t elements);

// That is, whether those of its states that are read in tiles do.
bool lies_on_nvme(const std::vector<StateTensor>& states, int64_t elements, uint64_t least_bytes);

// Of a model whose optimizer's place is NVMe.
struct NvmeShare {
  uint64_t file_bytes = 0;
  uint64_t host_bytes = 0;    // of states that stay on the host
  uint64_t buffer_bytes = 0;  // on the host
};
NvmeShare nvme_share(const Numerics& numerics, const std::vector<UpdatedParameter>& parameters,
                     uint64_t least_bytes);
// How many records of at most `largest` bytes the buffers hold, of so many that there are.
uint64_t buffered_records(uint64_t largest, uint64_t records);

}  // namespace spillway::trainer
