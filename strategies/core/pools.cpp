#include "strategies/core/pools.h"

#include <atomic>

namespace spillway {
namespace {
std::atomic<const spillway_pools*> known{nullptr};
}

void set_pools(const spillway_pools* pools) {
  if (pools != nullptr && pools->size >= sizeof *pools) known.store(pools);
}

bool pools_are_used() {
  const spillway_pools* pools = known.load();
  return pools != nullptr && pools->used() != 0;
}

void visit_pools(int device, void (*visit)(void*, uint64_t), void* context) {
  if (const spillway_pools* pools = known.load()) pools->visit(device, visit, context);
}

}  // namespace spillway
