// What the driver's pools keep, and captures of other threads' streams.
#include "allocator/streams/program_streams.h"
#include "strategies/core/pools.h"
#include "strategies/ladder/ladder.h"
#include "tests/allocator/simulated.h"

namespace spillway::testing {
namespace {

class TrimPoolsTest : public SimulatedDevice {
 protected:
  void SetUp() override {
    SimulatedDevice::SetUp();
    static constexpr spillway_pools kPools{
        .size = sizeof kPools, .used = [] { return 1; }, .visit = [](int32_t, auto*, void*) {}};
    set_pools(&kPools);
    captures_ = 0;
    follow_streams(*allocator, [] { return captures_; }, nullptr);
    ladder_ = std::make_unique<Ladder>(*allocator, LadderOptions{});
    ladder_->add(make_trim_pools(*allocator));
    allocator->set_handler(ladder_.get());
    set_capacity(64 * kMiB);
  }

  // Memory of the device's own pool that was freed, and counts as used until the stream is past that.
  void fill_pool(StreamId stream) {
    CUmemoryPool pool = nullptr;
    ASSERT_EQ(table.cuDeviceGetDefaultMemPool(&pool, 0), CUDA_SUCCESS);
    cuuint64_t everything = UINT64_MAX;
    ASSERT_EQ(table.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &everything),
              CUDA_SUCCESS);
    CUdeviceptr memory = 0;
    ASSERT_EQ(table.cuMemAllocFromPoolAsync(&memory, 32 * kMiB, pool, reinterpret_cast<CUstream>(stream)),
              CUDA_SUCCESS);
    launch(stream, memory, kMiB, 50'000);
    ASSERT_EQ(table.cuMemFreeAsync(memory, reinterpret_cast<CUstream>(stream)), CUDA_SUCCESS);
  }

  static inline uint32_t captures_ = 0;
  std::unique_ptr<Ladder> ladder_;
};

TEST_F(TrimPoolsTest, GivesBackWhatThePoolsKeep) {
  fill_pool(new_stream());
  EXPECT_NE(get(48 * kMiB), 0u);
}

TEST_F(TrimPoolsTest, BreaksNoCaptureOfAnotherStream) {
  fill_pool(new_stream());
  const auto captured = reinterpret_cast<CUstream>(new_stream());
  CUgraph graph = nullptr;
  ASSERT_EQ(table.cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  captures_ = 1;
  const StreamId other = new_stream();
  EXPECT_EQ(get(48 * kMiB, other), 0u);
  ASSERT_EQ(table.cuStreamEndCapture(captured, &graph), CUDA_SUCCESS) << "the device was waited for";
  captures_ = 0;
  EXPECT_NE(get(48 * kMiB, other), 0u);
  table.cuGraphDestroy(graph);
}

}  // namespace
}  // namespace spillway::testing
