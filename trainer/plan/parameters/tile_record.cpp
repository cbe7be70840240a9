#include "trainer/plan/parameters/tile_record.h"

#include <algorithm>

namespace spillway::trainer {
namespace {

constexpr uint64_t kLeastBuffered = 8;  // records, however large

}  // namespace

uint64_t tile_bytes(const std::vector<StateTensor>& states, int64_t elements) {
  uint64_t bytes = 0;
  for (const StateTensor& state : states)
    if (state.elements_per_entry > 0) bytes += aligned(part_bytes(state, elements), kPartAlignment);
  return bytes;
}

uint64_t record_bytes(const std::vector<StateTensor>& states, int64_t elements) {
  return aligned(tile_bytes(states, elements), kRecordAlignment);
}

bool lies_on_nvme(const std::vector<StateTensor>& states, int64_t elements, uint64_t least_bytes) {
  const uint64_t bytes = tile_bytes(states, elements);
  return bytes > 0 && bytes >= least_bytes;
}

uint64_t buffered_records(uint64_t largest, uint64_t records) {
  if (largest == 0) return 0;
  return std::min(records, std::max(kLeastBuffered, (kNvmeBuffers + largest - 1) / largest));
}

NvmeShare nvme_share(const Numerics& numerics, const std::vector<UpdatedParameter>& parameters,
                     uint64_t least_bytes) {
  NvmeShare share;
  uint64_t largest = 0, records = 0;
  for (const UpdatedParameter& parameter : parameters) {
    const std::vector<StateTensor> states = parameter.kept(numerics);
    const bool there = lies_on_nvme(states, parameter.elements(), least_bytes);
    for (const StateTensor& state : states)
      if (!there || state.elements_per_entry == 0) share.host_bytes += state.bytes();
    if (!there) continue;
    for (const TileRun& tiles : tile_runs(numerics, parameter, true)) {
      const uint64_t bytes = record_bytes(states, tiles.length), count = uint64_t(tiles.count);
      largest = std::max(largest, bytes);
      share.file_bytes += count * bytes;
      records += count;
    }
  }
  share.buffer_bytes = aligned(buffered_records(largest, records) * largest, kHugePage);
  return share;
}

}  // namespace spillway::trainer
