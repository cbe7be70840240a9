#include "interpose/account/native_pools.h"

#include <pthread.h>

#include <atomic>

#include "interpose/account/native_account.h"
#include "interpose/hooks/driver_table.h"
#include "interpose/plain_lock.h"

namespace spillway::interpose {
namespace {

PlainMutex<LockOrder::kNativePools> visiting;  // none is destroyed meanwhile
std::atomic<bool> used{false};
pthread_once_t prepared = PTHREAD_ONCE_INIT;

void in_child() {
  visiting.free_in_child();
  used.store(false);
}

void prepare() {
  pthread_atfork(nullptr, nullptr, in_child);
}

}  // namespace

void note_pool(uint64_t pool, int device) {
  pthread_once(&prepared, prepare);
  const HeldTable table;
  if (NativeEntry* known = table->find(Native::kPool, pool))
    known->device = device;
  else
    table.add({.key = pool, .device = device, .kind = Native::kPool});
}

void note_pool_used() {
  if (used.load(std::memory_order_relaxed)) return;
  pthread_once(&prepared, prepare);
  used.store(true, std::memory_order_relaxed);
}

Asked in_pool(uint64_t bytes, uint64_t pool) {
  const HeldTable table;
  const NativeEntry* known = table->find(Native::kPool, pool);
  if (known == nullptr) return {.bytes = bytes, .in_pool = true, .pool = pool};
  return {
      .bytes = bytes, .device = known->device, .on_host = known->device < 0, .in_pool = true, .pool = pool};
}

uint64_t pool_keeps(uint64_t pool, int device) {
  auto handle = reinterpret_cast<CUmemoryPool>(pool);
  const auto read = real().cuMemPoolGetAttribute;
  cuuint64_t reserved = 0, used = 0;
  const bool told = read != nullptr && real().cuDeviceGetMemPool != nullptr &&
                    (pool != 0 || real().cuDeviceGetMemPool(&handle, device) == CUDA_SUCCESS) &&
                    read(handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved) == CUDA_SUCCESS &&
                    read(handle, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used) == CUDA_SUCCESS;
  return told && reserved > used ? reserved - used : 0;
}

CUresult destroy_pool(CUmemoryPool pool, CUresult (*destroy)(CUmemoryPool)) {
  const Locked lock(visiting);
  const CUresult result = destroy(pool);
  if (result == CUDA_SUCCESS) {
    const HeldTable table;
    if (NativeEntry* known = table->find(Native::kPool, reinterpret_cast<uint64_t>(pool))) table.drop(known);
  }
  return result;
}

int pools_used() {
  return used.load(std::memory_order_relaxed) ? 1 : 0;
}

void visit_pools(int32_t device, void (*visit)(void* context, uint64_t pool), void* context) {
  constexpr size_t kMost = 256;
  uint64_t pools[kMost];
  size_t count = 0;
  const Locked lock(visiting);
  {
    const HeldTable table;
    table->each([&](const NativeEntry& entry) {
      if (entry.kind == Native::kPool && entry.device == device && count < kMost) pools[count++] = entry.key;
    });
  }
  for (size_t i = 0; i < count; ++i) visit(context, pools[i]);
}

}  // namespace spillway::interpose
