// A large request that no hole fits takes its pages from one idle hole of its stream, and not from the
// driver: when that is known to be idle, and not for ever.
#include "allocator/tiling/pool.h"
#include "tests/allocator/simulated.h"

namespace spillway::testing {
namespace {

class Moves : public SimulatedDevice {
 protected:
  void SetUp() override {
    SimulatedDevice::SetUp();
    set_capacity(4096 * kMiB);
    restart();
  }

  // [hole of 200 MiB][block][hole of 8 MiB][nothing yet]: 206 MiB fit behind the block with 198 MiB of pages.
  void make_holes(StreamId stream = {}) {
    rest_ = get(2048 * kMiB, stream);  // so that much is held
    const uint64_t hole = get(200 * kMiB, stream);
    block_ = get(4 * kMiB, stream);
    const uint64_t end = get(8 * kMiB, stream);
    put(hole);
    put(end);
    hole_ = hole;
  }

  uint64_t created() const { return control->calls("cuMemCreate"); }

  uint64_t rest_ = 0, block_ = 0, hole_ = 0;
};

TEST_F(Moves, TheLargeHoleServesARequestThatItIsTooSmallFor) {
  make_holes();
  const uint64_t held = memory().reserved, before = created();
  const uint64_t unmaps = control->calls("cuMemUnmap");
  const uint64_t large = get(206 * kMiB);
  ASSERT_EQ(large, block_ + 4 * kMiB);
  EXPECT_EQ(created(), before);
  EXPECT_EQ(control->calls("cuMemUnmap"), unmaps + 1);
  EXPECT_EQ(memory().reserved, held);
  launch({}, large, 206 * kMiB);
  EXPECT_EQ(get(2 * kMiB), hole_) << "what was not needed is still there";
}

TEST_F(Moves, NothingIsWaitedFor) {
  make_holes();
  launch({}, rest_, 2048 * kMiB, 1'000'000);
  const uint64_t held = memory().reserved, started = counts().virtual_ns;
  EXPECT_NE(get(206 * kMiB), 0u);
  EXPECT_EQ(memory().reserved, held + 198 * kMiB) << "created: the stream may still use the hole";
  EXPECT_LT(counts().virtual_ns - started, 1'000'000'000u);
}

TEST_F(Moves, NoCaptureIsBroken) {
  const StreamId captures = new_stream();
  make_holes(captures);
  auto* raw = reinterpret_cast<CUstream>(captures);
  ASSERT_EQ(table.cuStreamBeginCapture(raw, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_SUCCESS);
  const uint64_t held = memory().reserved;
  EXPECT_NE(get(206 * kMiB, captures), 0u);
  EXPECT_EQ(memory().reserved, held + 198 * kMiB);
  CUgraph graph = nullptr;
  EXPECT_EQ(table.cuStreamEndCapture(raw, &graph), CUDA_SUCCESS) << "the capture was not broken";
  table.cuGraphDestroy(graph);
}

TEST_F(Moves, OtherStreamsKeepTheirs) {
  make_holes(new_stream());
  const uint64_t held = memory().reserved;
  EXPECT_NE(get(150 * kMiB), 0u);
  EXPECT_EQ(memory().reserved, held + 150 * kMiB);
}

// A graph of a released pool may still run, on any stream.
TEST_F(Moves, PoolsKeepTheirs) {
  const auto get_from_pool = [&](uint64_t bytes) {
    uint64_t address = 0;
    EXPECT_EQ(allocator->allocate(kDevice, {bytes, {}, 7}, &address, nullptr), Status::kOk);
    return address;
  };
  get_from_pool(2048 * kMiB);
  const uint64_t hole = get_from_pool(200 * kMiB);
  get_from_pool(4 * kMiB);
  const uint64_t end = get_from_pool(8 * kMiB);
  put(hole);
  put(end);
  ASSERT_EQ(allocator->set_pool(kDevice, 7, kPoolReleased), Status::kOk);
  launch(new_stream(), hole, 200 * kMiB, 100000);
  const uint64_t held = memory().reserved;
  get_from_pool(206 * kMiB);
  EXPECT_EQ(memory().reserved, held + 198 * kMiB);
}

// Two places that take each other's pages in every step: it ends, because creating ends it.
TEST_F(Moves, TheyEnd) {
  rest_ = get(2048 * kMiB);
  const uint64_t wide = get(210 * kMiB), between = get(4 * kMiB), edge = get(8 * kMiB),
                 narrow = get(198 * kMiB);
  const uint64_t end = get(4 * kMiB);
  put(wide);
  put(narrow);
  ASSERT_EQ(allocator->empty_cache(kDevice), 408 * kMiB);
  put(edge);
  const uint64_t start = control->calls("cuMemUnmap");
  uint64_t last = start;
  for (int step = 0; step < 10; ++step) {
    last = control->calls("cuMemUnmap");
    const uint64_t large = get(210 * kMiB);
    ASSERT_EQ(large, wide);
    put(large);
    const uint64_t small = get(9 * kMiB), middle = get(206 * kMiB);
    if (step == 0) {
      ASSERT_EQ(small, wide);
      ASSERT_EQ(middle, edge) << "with the pages of the other place";
    }
    put(middle);
    put(small);
  }
  EXPECT_GT(control->calls("cuMemUnmap"), start);
  EXPECT_EQ(control->calls("cuMemUnmap"), last);
  for (const uint64_t address : {between, end, rest_}) put(address);
  EXPECT_GT(allocator->empty_cache(kDevice), 2048 * kMiB);
  make_holes();
  const uint64_t before = created();
  EXPECT_NE(get(206 * kMiB), 0u);
  EXPECT_EQ(created(), before) << "after the cache was emptied it begins again";
}

TEST_F(Moves, AFailureLeavesTheHole) {
  for (const char* function : {"cuMemUnmap", "cuStreamQuery"}) {
    make_holes();
    const uint64_t held = memory().reserved;
    control->fail_call(1, function, 0, CUDA_ERROR_UNKNOWN);
    const uint64_t large = get(206 * kMiB);
    EXPECT_NE(large, 0u) << function;
    EXPECT_EQ(memory().reserved, held + 198 * kMiB) << function;
    EXPECT_EQ(get(200 * kMiB), hole_) << function;
    for (const uint64_t address : {large, hole_, block_, rest_}) put(address);
    allocator->empty_cache(kDevice);
  }
  for (uint64_t n = 1; n <= 99; n += 49) {
    make_holes();
    const uint64_t held = memory().reserved;
    control->fail_call(n, "cuMemMap", 0, CUDA_ERROR_UNKNOWN);
    EXPECT_EQ(get(206 * kMiB), 0u) << n;
    EXPECT_EQ(status, Status::kDriverFailed);
    EXPECT_EQ(memory().reserved, held) << "the pages are spare";
    const uint64_t before = created();
    const uint64_t large = get(206 * kMiB);
    EXPECT_NE(large, 0u) << n;
    EXPECT_EQ(created(), before);
    for (const uint64_t address : {large, block_, rest_}) put(address);
    allocator->empty_cache(kDevice);
  }
}

}  // namespace
}  // namespace spillway::testing
