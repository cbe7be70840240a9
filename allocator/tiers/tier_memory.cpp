#include "allocator/tiers/tier_memory.h"

namespace spillway {

CUresult TierMemory::make(const SpillPlace& where, uint64_t bytes, std::vector<driver::Page>* out) {
  if (where.tier == Tier::kHost) return host_.take(bytes, where.most_bytes, out);
  CUmemGenericAllocationHandle handle = 0;
  const CUresult result = device_.create_elsewhere(where.tier, where.peer, bytes, &handle);
  if (result == CUDA_SUCCESS) out->push_back({handle, bytes});
  return result;
}

void TierMemory::give_back(const Piece& piece) {
  if (piece.tier == Tier::kNvme) return give_back(piece.stored);
  if (piece.tier == Tier::kHost) return host_.keep(piece.pages);
  for (const driver::Page& page : piece.pages) device_.release(page.handle);
}

void TierMemory::give_back(const std::vector<PageFile::Stored>& stored) {
  for (const PageFile::Stored& page : stored) shared_.page_file->give(page.place);
}

}  // namespace spillway
