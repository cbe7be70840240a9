// Stream-ordered pools: what is freed stays reserved, up to the release threshold, until a synchronisation.
#include "tests/simulator/driver/support.h"

namespace spillway::test {
namespace {

using driver::Table;

struct Pools {
  explicit Pools(const Table& driver) : table(driver) {
    EXPECT_EQ(table.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    EXPECT_EQ(table.cuDeviceGetDefaultMemPool(&pool, 0), CUDA_SUCCESS);
    whole = free_bytes();
  }
  uint64_t free_bytes() const {
    size_t free = 0, total = 0;
    EXPECT_EQ(table.cuMemGetInfo(&free, &total), CUDA_SUCCESS);
    return free;
  }
  uint64_t taken() const { return whole - free_bytes(); }
  uint64_t read(CUmemPool_attribute attribute) const {
    cuuint64_t value = 0;
    EXPECT_EQ(table.cuMemPoolGetAttribute(pool, attribute, &value), CUDA_SUCCESS);
    return value;
  }
  void set(CUmemPool_attribute attribute, cuuint64_t value) const {
    EXPECT_EQ(table.cuMemPoolSetAttribute(pool, attribute, &value), CUDA_SUCCESS);
  }
  CUdeviceptr get(uint64_t bytes) const {
    CUdeviceptr memory = 0;
    EXPECT_EQ(table.cuMemAllocFromPoolAsync(&memory, bytes, pool, stream), CUDA_SUCCESS);
    return memory;
  }
  void free(CUdeviceptr memory) const { EXPECT_EQ(table.cuMemFreeAsync(memory, stream), CUDA_SUCCESS); }

  const Table& table;
  CUstream stream = nullptr;
  CUmemoryPool pool = nullptr;
  uint64_t whole = 0;
};

void with_pools(const std::function<void(Pools&)>& body) {
  in_process({{"SPILLWAY_SIM_CAPACITY", "64MiB"}}, [&] {
    Pools pools(started_driver());
    body(pools);
    EXPECT_EQ(counts(pools.table).violations, 0u);
  });
}

TEST(Pools, give_back_at_a_synchronisation_without_a_threshold) {
  with_pools([](const Pools& p) {
    p.free(p.get(8 * kMiB));
    EXPECT_EQ(p.taken(), 8 * kMiB) << "until the next synchronisation";
    EXPECT_EQ(p.table.cuStreamSynchronize(p.stream), CUDA_SUCCESS);
    EXPECT_EQ(p.taken(), 0u);
    EXPECT_EQ(p.read(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0u);
  });
}

TEST(Pools, keep_what_the_threshold_allows) {
  with_pools([](const Pools& p) {
    p.set(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, 10 * kMiB);
    const CUdeviceptr first = p.get(8 * kMiB), second = p.get(8 * kMiB);
    EXPECT_EQ(p.read(CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 16 * kMiB);
    p.free(first);
    p.free(second);
    EXPECT_EQ(p.table.cuCtxSynchronize(), CUDA_SUCCESS);
    EXPECT_EQ(p.taken(), 10 * kMiB);
    EXPECT_EQ(p.read(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 10 * kMiB);
    EXPECT_EQ(p.read(CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), 16 * kMiB);
    EXPECT_EQ(p.read(CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0u);
    EXPECT_EQ(p.table.cuMemPoolTrimTo(p.pool, 4 * kMiB), CUDA_SUCCESS);
    EXPECT_EQ(p.taken(), 4 * kMiB);
    EXPECT_EQ(p.table.cuMemPoolTrimTo(p.pool, 6 * kMiB), CUDA_SUCCESS) << "which it has not";
    EXPECT_EQ(p.taken(), 4 * kMiB);
    p.set(CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, 0);
    EXPECT_EQ(p.read(CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), 4 * kMiB);
  });
}

TEST(Pools, serve_any_size_out_of_what_they_keep) {
  with_pools([](const Pools& p) {
    p.set(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, UINT64_MAX);
    for (const CUdeviceptr memory : {p.get(20 * kMiB), p.get(20 * kMiB)}) p.free(memory);
    EXPECT_EQ(p.table.cuCtxSynchronize(), CUDA_SUCCESS);
    CUdeviceptr other = 0;
    EXPECT_EQ(p.table.cuMemAlloc(&other, 30 * kMiB), CUDA_ERROR_OUT_OF_MEMORY) << "they are the pool's";
    const CUdeviceptr large = p.get(50 * kMiB);
    EXPECT_EQ(p.taken(), 50 * kMiB);
    CUdeviceptr more = 0;
    EXPECT_EQ(p.table.cuMemAllocFromPoolAsync(&more, 20 * kMiB, p.pool, p.stream), CUDA_ERROR_OUT_OF_MEMORY);
    p.free(large);
    EXPECT_EQ(p.table.cuMemAllocFromPoolAsync(&more, 70 * kMiB, p.pool, p.stream), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(p.taken(), 50 * kMiB) << "what was refused took nothing from the pool";
    EXPECT_EQ(p.table.cuMemPoolTrimTo(p.pool, 0), CUDA_SUCCESS);
    EXPECT_EQ(p.taken(), 0u);
  });
}

TEST(Pools, keep_what_a_stream_may_still_use) {
  with_pools([](const Pools& p) {
    p.set(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, UINT64_MAX);
    const CUdeviceptr memory = p.get(8 * kMiB);
    const SpillwayRange range = {memory, 8 * kMiB, true};
    EXPECT_EQ(p.table.simulator->submit(p.stream, "gemm", &range, 1, 1'000'000, nullptr, nullptr),
              CUDA_SUCCESS);
    p.free(memory);
    EXPECT_EQ(p.table.cuMemPoolTrimTo(p.pool, 0), CUDA_SUCCESS);
    EXPECT_EQ(p.taken(), 8 * kMiB);
    EXPECT_EQ(p.table.cuCtxSynchronize(), CUDA_SUCCESS);
    EXPECT_EQ(p.table.cuMemPoolTrimTo(p.pool, 0), CUDA_SUCCESS);
    EXPECT_EQ(p.taken(), 0u);
  });
}

TEST(Pools, that_are_destroyed_keep_nothing) {
  with_pools([](Pools& p) {
    CUmemPoolProps properties = {};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    EXPECT_EQ(p.table.cuMemPoolCreate(&p.pool, &properties), CUDA_SUCCESS);
    p.set(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, UINT64_MAX);
    const CUdeviceptr live = p.get(2 * kMiB);
    p.free(p.get(6 * kMiB));
    EXPECT_EQ(p.table.cuMemPoolDestroy(p.pool), CUDA_SUCCESS);
    EXPECT_EQ(p.taken(), 2 * kMiB) << "what is live stays until it is freed";
    p.free(live);
    EXPECT_EQ(p.taken(), 0u);
  });
}

}  // namespace
}  // namespace spillway::test
