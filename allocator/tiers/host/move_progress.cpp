#include "allocator/tiers/host/move_progress.h"

namespace spillway {

CUresult put_old_pages_back(Device& device, const Progress& progress) {
  const uint64_t begin = progress.move->range.begin;
  if (progress.in_bytes != 0)
    if (const CUresult result = device.unmap(begin, progress.in_bytes); result != CUDA_SUCCESS) return result;
  std::vector<driver::Page> old;
  uint64_t bytes = 0;
  for (const driver::Page& page : progress.move->from) {
    if (bytes == progress.out_bytes) break;
    old.push_back(page);
    bytes += page.bytes;
  }
  return old.empty() ? CUDA_SUCCESS : device.map(begin, old);
}

}  // namespace spillway
