#include "allocator/tiers/tier_memory.h"

#include <algorithm>

namespace spillway {

CUresult TierMemory::make(const SpillPlace& where, uint64_t bytes, CUmemGenericAllocationHandle* handle) {
  if (where.tier == Tier::kHost) {
    if (const auto kept = host_.take(bytes)) {
      *handle = *kept;
      return CUDA_SUCCESS;
    }
    host_.shrink(where.most_bytes - std::min(where.most_bytes, bytes));
  }
  return device_.create_elsewhere(where.tier, where.peer, bytes, handle);
}

void TierMemory::give_back(const Piece& piece) {
  if (piece.tier == Tier::kNvme) return give_back(piece.stored);
  if (piece.tier == Tier::kHost) return host_.keep(piece.range.bytes(), piece.handle);
  device_.release(piece.handle);
}

void TierMemory::give_back(const std::vector<PageFile::Stored>& stored) {
  for (const PageFile::Stored& page : stored) shared_.page_file->give(page.place);
}

}  // namespace spillway
