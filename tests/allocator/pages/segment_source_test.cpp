// Pools whose segments come from a source of their own: cut into blocks by the same arenas, and given back
// whole.
#include <thread>
#include <utility>

#include "allocator/accounting/process_budget.h"
#include "allocator/sharing/shared.h"
#include "tests/allocator/fuzz/fuzz_source.h"
#include "tests/allocator/pages/segment_source.h"

namespace spillway::testing {
namespace {

TEST_F(SegmentSourceTest, BlocksShareASegment) {
  const uint64_t small = get_there(1000), next = get_there(512);
  const uint64_t large = get_there(3 * kMiB), beside = get_there(5 * kMiB), own = get_there(31 * kMiB);
  EXPECT_EQ(library.asked, (std::vector<uint64_t>{kPage, 20 * kMiB, 32 * kMiB}));
  EXPECT_EQ(next, small + 1024);
  EXPECT_EQ(beside, large + 3 * kMiB);
  EXPECT_EQ(memory().reserved, 54 * kMiB);
  EXPECT_EQ(counts().live_pages_bytes, 0u) << "the driver was asked for nothing";
  BlockInfo block;
  EXPECT_EQ(allocator->find_block(beside + 7, &block), Status::kOk);
  EXPECT_EQ(block.segment, large);
  EXPECT_EQ(block.pool, kPool);
  put(large);
  EXPECT_EQ(get_there(3 * kMiB), large);
  EXPECT_NE(get(3 * kMiB), 0u);
  for (const uint64_t address : {small, next, large, beside, own}) put(address);
  EXPECT_EQ(library.asked.size(), 3u);
}

TEST_F(SegmentSourceTest, IdleSegmentsGoBackWhenThePoolIsReleased) {
  const uint64_t first = get_there(12 * kMiB), second = get_there(3 * kMiB), third = get_there(3 * kMiB);
  put(first);
  put(second);
  EXPECT_EQ(allocator->empty_cache(kDevice) + give_back(), 0u) << "a graph may use them";
  set(kPoolReleased);
  EXPECT_EQ(memory().pools, 29 * kMiB);
  EXPECT_EQ(allocator->empty_cache(kDevice), 0u) << "strategies may call this with locks";
  EXPECT_EQ(give_back(7), 0u);
  EXPECT_EQ(give_back(kPool), 12 * kMiB);
  EXPECT_EQ(library.ends, 0) << "a block is in use";
  put(third);
  EXPECT_EQ(give_back(), 20 * kMiB);
  EXPECT_EQ(library.freed, (std::vector<uint64_t>{12 * kMiB, 20 * kMiB}));
  EXPECT_EQ(library.ends, 1);
  EXPECT_EQ(memory().reserved, 0u);
}

TEST_F(SegmentSourceTest, OneThatWasNeverAskedEndsWithItsPool) {
  set(kPoolReleased);
  EXPECT_EQ(library.ends, 1);
  EXPECT_EQ(get_there(kMiB), 0u) << "who asks too late";
  EXPECT_EQ(status, Status::kOutOfMemory);
}

TEST_F(SegmentSourceTest, RefusesWithoutMemory) {
  library.most = 25 * kMiB;
  const uint64_t block = get_there(3 * kMiB);
  EXPECT_EQ(get_there(18 * kMiB), 0u);
  EXPECT_EQ(status, Status::kOutOfMemory);
  EXPECT_EQ(failure->text, "the memory pool's own allocator has no more memory");
  EXPECT_EQ(failure->event.requested_bytes, 18 * kMiB);
  EXPECT_EQ(library.asked.size(), 2u);
  EXPECT_EQ(memory().reserved, 20 * kMiB);
  library.most = 0;
  EXPECT_EQ(get_there(1000), block + 3 * kMiB) << "a small one then lies among large ones";
}

TEST_F(SegmentSourceTest, IsAskedAgainWhenNothingIsCachedAnyMore) {
  put(get(40 * kMiB));
  EXPECT_EQ(memory().reserved, 40 * kMiB);
  library.while_asked = [this] {
    library.most = counts().live_pages_bytes == 0 ? UINT64_MAX : 0;  // as one that takes it from the driver
  };
  EXPECT_NE(get_there(30 * kMiB), 0u);
  EXPECT_EQ(library.asked.size(), 2u);
  EXPECT_EQ(memory().reserved, 30 * kMiB);
}

TEST_F(SegmentSourceTest, AnotherErrorEndsTheRequestAtOnce) {
  add_ladder();
  put(get(4 * kMiB));
  library.answer = SPILLWAY_SEGMENT_FAILED;
  EXPECT_EQ(get_there(3 * kMiB), 0u);
  EXPECT_EQ(status, Status::kDriverFailed);
  EXPECT_NE(failure->text.find("the memory pool's own allocator for 3.0 MiB"), std::string::npos)
      << failure->text;
  EXPECT_EQ(library.asked.size(), 1u);
  EXPECT_EQ(memory().reserved, 4 * kMiB) << "and no room was made for it";
}

TEST_F(SegmentSourceTest, AddressesThatCannotBeUsedGoBack) {
  const uint64_t good = get_there(12 * kMiB);
  for (const uint64_t nowhere : {uint64_t{1} << 47, UINT64_MAX - 100, good + kMiB}) {
    library.next = nowhere;
    EXPECT_EQ(get_there(11 * kMiB), 0u);
    EXPECT_EQ(status, Status::kDriverFailed);
    EXPECT_EQ(memory().reserved, 12 * kMiB);
  }
  EXPECT_EQ(library.freed.size(), 3u);
  library.next = 512;
  EXPECT_EQ(get_there(30 * kMiB), 512u) << "in the middle of nowhere, but they can";
  put(512);
  put(good);
}

TEST_F(SegmentSourceTest, CountsAgainstTheLimit) {
  add_ladder();
  EXPECT_EQ(allocator->limit(kDevice, 64 * kMiB), Status::kOk);
  const uint64_t mine = get_there(20 * kMiB);
  EXPECT_EQ(get(60 * kMiB), 0u);
  const uint64_t other = get(44 * kMiB);
  EXPECT_EQ(get_there(30 * kMiB), 0u);
  EXPECT_EQ(status, Status::kOutOfMemory);
  EXPECT_EQ(library.asked.size(), 1u) << "there is no quota to ask for";
  put(other);
  EXPECT_NE(get_there(30 * kMiB), 0u) << "idle pages make room";
  EXPECT_EQ(memory().reserved, 64 * kMiB);
  EXPECT_NE(get_there(3 * kMiB, new_stream()), 0u) << "as large as the request, where the usual is too much";
  EXPECT_EQ(library.asked.back(), 4 * kMiB);
  put(mine);
}

TEST_F(SegmentSourceTest, WhatReleasedPoolsLeaveIdleMakesRoom) {
  EXPECT_EQ(allocator->limit(kDevice, 64 * kMiB), Status::kOk);
  const uint64_t mine = get_there(40 * kMiB);
  put(mine);
  EXPECT_EQ(get(60 * kMiB), 0u);
  set(kPoolReleased);
  EXPECT_NE(get(60 * kMiB), 0u);
  EXPECT_EQ(library.freed.size(), 1u);
}

TEST_F(SegmentSourceTest, LendsItsFreeBlocks) {
  set(kPoolLends);
  EXPECT_EQ(allocator->limit(kDevice, 44 * kMiB), Status::kOk);
  const uint64_t mine = get_there(40 * kMiB);
  put(mine);
  const uint64_t lent = get(30 * kMiB);
  EXPECT_EQ(lent, mine);
  EXPECT_EQ(get(30 * kMiB), 0u);
  EXPECT_EQ(get(9 * kMiB, new_stream()), 0u) << "another stream's";
  put(lent);
}

TEST_F(SegmentSourceTest, ABlockIsItsSegmentWhereThePoolDoesNotSplit) {
  set(kPoolWholePages | kPoolSingleHandle);
  const uint64_t small = get_there(1000), large = get_there(3 * kMiB);
  EXPECT_EQ(library.asked, (std::vector<uint64_t>{kPage, 20 * kMiB}));
  BlockInfo block;
  EXPECT_EQ(allocator->find_block(large, &block), Status::kOk);
  EXPECT_EQ(block.bytes, 20 * kMiB);
  put(large);
  EXPECT_EQ(get_there(7 * kMiB), large);
  put(large);
  put(small);
}

TEST_F(SegmentSourceTest, ABlockWaitsForItsStreamsAndThenServesTheNextRequest) {
  library.driver = &table;
  const StreamId other = new_stream();
  const uint64_t block = get_there(3 * kMiB);
  launch(other, block, kMiB);
  EXPECT_EQ(allocator->record_stream(block, other), Status::kOk);
  put(block);
  const uint64_t next = get_there(3 * kMiB);
  EXPECT_NE(next, block);
  EXPECT_EQ(table.cuStreamSynchronize(reinterpret_cast<CUstream>(other)), CUDA_SUCCESS);
  EXPECT_EQ(get_there(3 * kMiB), block);
}

TEST_F(SegmentSourceTest, NothingIsAskedUnderALockOfSpillways) {
  add_ladder();
  EXPECT_EQ(allocator->limit(kDevice, 64 * kMiB), Status::kOk);
  // Another thread's requests, of which one climbs the ladder: they must end while the source is called.
  const auto others = [this] {
    std::thread([this] {
      uint64_t address = 0;
      EXPECT_EQ(allocator->allocate(kDevice, {kMiB, {}, 0}, &address, nullptr), Status::kOk);
      EXPECT_EQ(allocator->free(address), Status::kOk);
      EXPECT_EQ(allocator->allocate(kDevice, {200 * kMiB, {}, 0}, &address, nullptr), Status::kOutOfMemory);
    }).join();
  };
  library.while_asked = library.while_freed = others;
  put(get(60 * kMiB));
  const uint64_t block = get_there(40 * kMiB);  // by the ladder
  EXPECT_NE(block, 0u);
  put(block);
  set(kPoolReleased);
  EXPECT_EQ(give_back(), 40 * kMiB);
}

TEST_F(SegmentSourceTest, IsSetOnceAndBeforeTheFirstRequest) {
  Library second;
  EXPECT_EQ(set_source(*allocator, kDevice, kPool, second.functions()), Status::kInvalid);
  EXPECT_NE(get(kMiB, {}, 9), 0u);
  EXPECT_EQ(set_source(*allocator, kDevice, 9, second.functions()), Status::kInvalid);
  EXPECT_EQ(set_source(*allocator, kDevice, 0, second.functions()), Status::kInvalid);
  EXPECT_EQ(set_source(*allocator, DeviceId{77}, 11, second.functions()), Status::kNotFound);
  EXPECT_EQ(second.ends, 4) << "it is not kept";
}

// Whoever the source has it from draws it: the driver's hooks, where it asks the driver.
TEST_F(SegmentSourceTest, TheProcesssBudgetIsDrawnByTheSourceAlone) {
  spillway_budget budget{};
  budget.limit_bytes = 64 * kMiB;
  Library drawing;
  drawing.while_asked = [&] {
    EXPECT_EQ(budget.taken_bytes[0], budget.native_bytes[0]);
    if (!budget::draw(budget, 0, drawing.asked.back(), 0, budget::By::kDriverCall)) drawing.most = 0;
  };
  drawing.while_freed = [&] { budget::give_back(budget, 0, 20 * kMiB, budget::By::kDriverCall); };
  restart();
  allocator->set_budget(&budget);
  EXPECT_EQ(set_source(*allocator, kDevice, kPool, drawing.functions()), Status::kOk);
  const uint64_t block = get_there(3 * kMiB);
  EXPECT_EQ(budget.taken_bytes[0], 20 * kMiB);
  EXPECT_EQ(memory().reserved, 20 * kMiB);
  EXPECT_LT(memory().context, 20 * kMiB) << "what is held is not outside";
  EXPECT_EQ(get_there(60 * kMiB), 0u);
  put(block);
  set(kPoolReleased);
  EXPECT_EQ(give_back(), 20 * kMiB);
  EXPECT_EQ(budget.taken_bytes[0], 0u);
  restart();
}

// A program over a source that takes from the driver: what fails strikes once at each place, or for good.
class SegmentSourceSweep : public SegmentSourceTest, public ::testing::WithParamInterface<bool> {
 protected:
  void run_program(uint64_t pool) {
    EXPECT_EQ(set_source(*allocator, kDevice, pool, FuzzSource::make(table)), Status::kOk);
    const StreamId other = new_stream();
    std::vector<uint64_t> blocks;
    for (const uint64_t bytes : {uint64_t{1000}, 3 * kMiB, 12 * kMiB, 700 * kKiB, 5 * kMiB})
      blocks.push_back(get(bytes, {}, pool));
    blocks.push_back(get(30 * kMiB));
    if (blocks[1] != 0) {
      EXPECT_EQ(allocator->record_stream(blocks[1], other), Status::kOk);
    }
    for (uint64_t& block : blocks)
      if (block != 0) put(std::exchange(block, 0));
    blocks[0] = get(3 * kMiB, {}, pool);
    EXPECT_EQ(allocator->set_pool(kDevice, pool, kPoolReleased), Status::kOk);
    if (blocks[0] != 0) put(blocks[0]);
    allocator->empty_cache(kDevice);
    give_back();
  }
  // Until a run in which nothing failed any more. How many runs that took.
  template <typename Arm, typename Disarm>
  uint64_t sweep(Arm arm, Disarm disarm) {
    add_ladder();
    EXPECT_EQ(allocator->limit(kDevice, 64 * kMiB), Status::kOk);
    for (uint64_t n = 1; n < 300; ++n) {
      arm(n);
      run_program(100 + n);
      const bool struck = disarm();
      allocator->empty_cache(kDevice);
      give_back();
      EXPECT_EQ(counts().live_pages_bytes, 0u) << n;
      EXPECT_EQ(memory().reserved, 0u) << n;
      if (!struck) return n;
    }
    return 300;
  }
};

TEST_P(SegmentSourceSweep, OfTheDriversCalls) {
  for (const CUresult code : {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_UNKNOWN}) {
    uint64_t before = 0;
    const uint64_t runs = sweep(
        [&](uint64_t n) {
          before = counts().injected_failures;
          control->fail_call(n, "cuMemAlloc", GetParam(), code);
        },
        [&] {
          control->fail_call(0, nullptr, 0, CUDA_SUCCESS);
          return counts().injected_failures != before;
        });
    EXPECT_GT(runs, 3u);
    EXPECT_LT(runs, 30u);
    restart();
    ladder.reset();
  }
}

TEST_P(SegmentSourceSweep, OfRequests) {
  const uint64_t runs = sweep([&](uint64_t n) { allocator->fail_request(n, GetParam()); },
                              [&] { return allocator->fail_request(0, false) != 0; });
  EXPECT_EQ(runs, 8u) << "seven requests";
}

INSTANTIATE_TEST_SUITE_P(Lasting, SegmentSourceSweep, ::testing::Bool());

TEST_F(SegmentSourceTest, ItsBlocksStayWhereTheyAre) {
  const uint64_t block = get_there(8 * kMiB);
  SharedBlock shared;
  std::string text;
  EXPECT_EQ(allocator->share(block, &shared, &text), Status::kOk) << text;
  EXPECT_TRUE(shared.pages.empty());
  EXPECT_EQ(shared.offset, 0u);
  EXPECT_EQ(counts().live_pages_bytes, 0u);
  put(block);
}

}  // namespace
}  // namespace spillway::testing
