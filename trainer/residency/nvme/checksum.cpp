#include "trainer/residency/nvme/checksum.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace spillway::trainer {

uint64_t block_checksum(const std::byte* data, size_t bytes) {
  return XXH3_64bits(data, bytes);
}

}  // namespace spillway::trainer
