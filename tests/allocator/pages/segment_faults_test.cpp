// What went wrong once with segments that are allocations, of a pool's own source or of the driver's.
#include <cstdio>
#include <thread>

#include "allocator/accounting/process_budget.h"
#include "allocator/sharing/shared.h"
#include "tests/allocator/pages/segment_source.h"
#include "trace/reader.h"
#include "trace/writer.h"

namespace spillway::testing {
namespace {

class SegmentSourceFaults : public SegmentSourceTest {
 protected:
  // Gives a pool another library, which ends before the test's own does.
  void add_source(Library& library, uint64_t pool) {
    EXPECT_EQ(set_source(*allocator, kDevice, pool, library.functions()), Status::kOk);
  }
  Status find(uint64_t address, BlockInfo* block) { return allocator->find_block(address, block); }
};

// The first request left no place in the page map for blocks that begin later.
TEST_F(SegmentSourceFaults, ASegmentThatWasOneBlockIsCutLater) {
  constexpr uint64_t kOfDriver = 6;
  set(kPoolDriverMemory, kOfDriver);
  for (const uint64_t pool : {kPool, kOfDriver}) {
    const uint64_t whole = get(40 * kMiB, {}, pool);
    put(whole);
    const uint64_t first = get(30 * kMiB, {}, pool), second = get(5 * kMiB, {}, pool);
    EXPECT_EQ(first, whole);
    EXPECT_EQ(second, whole + 30 * kMiB);
    BlockInfo block;
    EXPECT_EQ(find(second + 3 * kMiB, &block), Status::kOk);
    EXPECT_EQ(block.address, second);
    put(second);
    put(first);
  }
}

TEST_F(SegmentSourceFaults, ASegmentThatWasOneBlockIsLentInParts) {
  set(kPoolLends);
  EXPECT_EQ(allocator->limit(kDevice, 44 * kMiB), Status::kOk);
  const uint64_t whole = get_there(40 * kMiB);
  put(whole);
  const uint64_t first = get(30 * kMiB), second = get(5 * kMiB);
  EXPECT_EQ(first, whole);
  EXPECT_EQ(second, whole + 30 * kMiB);
  put(first);
  put(second);
}

// Who gives an address to its source may see another thread have it again before the source returns.
TEST_F(SegmentSourceFaults, AnAddressThatWentBackIsGivenAgainAtOnce) {
  constexpr uint64_t kOther = 6;
  Library other;
  add_source(other, kOther);
  const uint64_t block = get_there(12 * kMiB);
  library.after_freed = [&] {
    other.next = block;
    std::thread([&] {
      uint64_t again = 0;
      EXPECT_EQ(allocator->allocate(kDevice, {12 * kMiB, {}, kOther}, &again, nullptr), Status::kOk);
      EXPECT_EQ(again, block);
      check();
    }).join();
  };
  put(block);
  set(kPoolReleased);
  EXPECT_EQ(give_back(), 12 * kMiB);
  BlockInfo found;
  EXPECT_EQ(find(block + kMiB, &found), Status::kOk);
  EXPECT_EQ(found.pool, kOther);
  EXPECT_EQ(memory().reserved, 12 * kMiB);
  put(block);
  restart();
}

// The same for an address that the driver has, and gives to the source of another pool.
TEST_F(SegmentSourceFaults, AnAddressThatTheDriverHasBackIsGivenAgainAtOnce) {
  constexpr uint64_t kOfDriver = 6;
  set(kPoolDriverMemory, kOfDriver);
  const uint64_t block = get(12 * kMiB, {}, kOfDriver);
  put(block);
  set(kPoolReleased | kPoolDriverMemory, kOfDriver);
  library.next = block;
  struct Asking final : Observer {
    void observe(Change change, const BlockInfo&) noexcept override {
      if (change == Change::kUnmapped && work) std::exchange(work, nullptr)();
    }
    std::function<void()> work;
  } asking;
  asking.work = [&] {
    std::thread([&] {
      uint64_t again = 0;
      EXPECT_EQ(allocator->allocate(kDevice, {12 * kMiB, {}, kPool}, &again, nullptr), Status::kOk);
      EXPECT_EQ(again, block);
    }).join();
  };
  allocator->set_observer(&asking);
  EXPECT_EQ(allocator->empty_cache(kDevice), 12 * kMiB);
  allocator->set_observer(nullptr);
  EXPECT_EQ(asking.work, nullptr) << "it was asked meanwhile";
  put(block);
}

// Less was lacking for the bytes of a small request than for its segment.
TEST_F(SegmentSourceFaults, IdlePagesMakeRoomForTheSegmentOfASmallRequest) {
  add_ladder();
  EXPECT_EQ(allocator->limit(kDevice, 65 * kMiB), Status::kOk);
  put(get(64 * kMiB));
  const uint64_t small = get_there(1000);
  EXPECT_NE(small, 0u);
  put(small);
}

TEST_F(SegmentSourceFaults, ASourceAlignsAsItLikes) {
  const uint64_t base = (uint64_t{1} << 46) + 256;
  library.next = base;
  const uint64_t first = get_there(3 * kMiB);
  EXPECT_EQ(first, base + 256);
  const uint64_t own = get_there(20 * kMiB);
  EXPECT_EQ(own % 512, 0u);
  EXPECT_EQ(library.asked, (std::vector<uint64_t>{20 * kMiB, 20 * kMiB, 20 * kMiB + 512}));
  EXPECT_EQ(library.freed, (std::vector<uint64_t>{20 * kMiB})) << "too small for a block that begins later";
  EXPECT_EQ(memory().reserved, 40 * kMiB + 512);
  BlockInfo block;
  EXPECT_EQ(find(own + 19 * kMiB, &block), Status::kOk);
  EXPECT_EQ(block.segment, own);
  SharedBlock shared;
  std::string text;
  EXPECT_EQ(allocator->share(first, &shared, &text), Status::kOk) << text;
  EXPECT_EQ(shared.offset, 256u) << "in what the source gave";
  put(first);
  put(own);
  set(kPoolReleased);
  EXPECT_EQ(give_back(), 40 * kMiB + 512);
  EXPECT_EQ(memory().reserved, 0u);
}

TEST_F(SegmentSourceFaults, AnAddressOutOfReachIsNamed) {
  for (const auto& [address, reason] : {std::pair{uint64_t{1} << 47, "an address from 2^47 on"},
                                        std::pair{get_there(12 * kMiB) + kMiB, "memory that is in use"}}) {
    library.next = address;
    EXPECT_EQ(get_there(11 * kMiB), 0u);
    EXPECT_EQ(status, Status::kDriverFailed);
    EXPECT_NE(failure->text.find(reason), std::string::npos) << failure->text;
  }
  library.next = uint64_t{1} << 44;
  put(get_there(11 * kMiB));
}

// The last block of one segment lies in the page where the next segment begins.
TEST_F(SegmentSourceFaults, ABlockIsNotLookedForInTheSegmentBefore) {
  library.next = (uint64_t{1} << 45) + kMiB;
  const uint64_t large = get_there(19 * kMiB), last = get_there(kMiB);
  const uint64_t second = get_there(3 * kMiB), third = get_there(kMiB);
  EXPECT_EQ(last, large + 19 * kMiB);
  ASSERT_EQ(second, last + kMiB);
  ASSERT_NE(second % kPage, 0u);
  put(second);
  BlockInfo block;
  EXPECT_EQ(find(second, &block), Status::kNotFound);
  EXPECT_EQ(find(last + kMiB - 1, &block), Status::kOk);
  EXPECT_EQ(find(third, &block), Status::kOk);
  for (const uint64_t address : {large, last, third}) put(address);
}

// A source whose memory was taken long ago needs nothing of the process's budget, nor of what the card has.
TEST_F(SegmentSourceFaults, OnlyTheLimitIsAskedForASource) {
  spillway_budget budget{};
  budget.limit_bytes = 64 * kMiB;
  budget.reserve_bytes = 250 * kMiB;
  Library slab;
  restart();
  allocator->set_budget(&budget);
  add_source(slab, kPool);
  EXPECT_TRUE(budget::draw(budget, 0, 60 * kMiB, 0, budget::By::kDriverCall));
  EXPECT_EQ(allocator->limit(kDevice, 44 * kMiB), Status::kOk);
  const uint64_t first = get_there(3 * kMiB), second = get_there(24 * kMiB);
  EXPECT_NE(first, 0u);
  EXPECT_NE(second, 0u);
  EXPECT_EQ(budget.taken_bytes[0], 60 * kMiB);
  EXPECT_EQ(get_there(21 * kMiB), 0u);
  EXPECT_EQ(slab.asked.size(), 2u) << "the limit holds";
  put(second);
  EXPECT_EQ(get_there(23 * kMiB), second);
  put(first);
  restart();
  EXPECT_EQ(budget.taken_bytes[0], 60 * kMiB);
}

// Room that the ladder made for it was drawn from the budget.
TEST_F(SegmentSourceFaults, RoomThatWasMadeForASourceLeavesTheBudget) {
  spillway_budget budget{};
  budget.limit_bytes = 128 * kMiB;
  Library library;
  restart();
  add_ladder();
  allocator->set_budget(&budget);
  add_source(library, kPool);
  EXPECT_EQ(allocator->limit(kDevice, 64 * kMiB), Status::kOk);
  put(get(60 * kMiB));
  EXPECT_NE(get_there(40 * kMiB), 0u);
  EXPECT_EQ(budget.taken_bytes[0] + 40 * kMiB, memory().reserved);
  restart();
  ladder.reset();
}

// Neither a strategy nor the thread that answers other processes can give these.
TEST_F(SegmentSourceFaults, WhatOnlyASourceCanHaveBackIsNotCached) {
  const uint64_t block = get_there(12 * kMiB), part = get_there(3 * kMiB), rest = get_there(kMiB);
  put(block);
  put(part);
  set(kPoolReleased);
  EXPECT_EQ(memory().cached, 0u);
  EXPECT_EQ(memory().pools, 12 * kMiB + 19 * kMiB);
  EXPECT_EQ(allocator->empty_cache(kDevice), 0u);
  EXPECT_EQ(give_back(), 12 * kMiB);
  put(rest);
}

class CallingHandler final : public OomHandler {
 public:
  LadderOutcome handle(PendingRequest& request) noexcept override {
    runs = true;
    if (work) work();
    const bool served = request.retry() || request.retry();  // the first may be made to fail
    runs = false;
    return served ? LadderOutcome::kGranted : LadderOutcome::kGiveUp;
  }
  bool runs = false;
  std::function<void()> work;
};

// The source may need a lock that a thread has which waits for the handler.
TEST_F(SegmentSourceFaults, NothingOfASourceRunsWhileAHandlerDoes) {
  CallingHandler handler;
  allocator->set_handler(&handler);
  EXPECT_EQ(allocator->limit(kDevice, 64 * kMiB), Status::kOk);
  const uint64_t other = get(60 * kMiB);
  int sized = 0;
  library.while_sized = [&] {
    ++sized;
    EXPECT_FALSE(handler.runs);
  };
  library.while_asked = [&] { EXPECT_FALSE(handler.runs); };
  handler.work = [&] { put(other), allocator->empty_cache(kDevice); };
  const uint64_t block = get_there(40 * kMiB);
  EXPECT_NE(block, 0u);
  EXPECT_EQ(sized, 1);
  handler.work = nullptr;
  allocator->fail_request(1, false);
  EXPECT_NE(get_there(12 * kMiB), 0u) << "also where the first try is made to fail";
  EXPECT_EQ(sized, 2);
  handler.work = [&] {
    uint64_t address = 0;
    EXPECT_EQ(allocator->allocate(kDevice, {3 * kMiB, {}, kPool}, &address, nullptr), Status::kOutOfMemory);
  };
  EXPECT_EQ(get(60 * kMiB), 0u);
  EXPECT_EQ(library.asked.size(), 2u);
  allocator->set_handler(nullptr);
}

TEST_F(SegmentSourceFaults, NothingGoesBackToASourceWhileAHandlerRuns) {
  CallingHandler handler;
  allocator->set_handler(&handler);
  const uint64_t block = get_there(12 * kMiB);
  set(kPoolReleased);
  handler.work = [&] {
    put(block);
    EXPECT_EQ(give_back(), 0u);
  };
  EXPECT_EQ(get(300 * kMiB), 0u);
  EXPECT_TRUE(library.freed.empty());
  EXPECT_EQ(give_back(), 12 * kMiB);
  allocator->set_handler(nullptr);
}

// Another pool may take over the arena before the source has ended.
TEST_F(SegmentSourceFaults, ASourceEndsWhoseArenaServesAnotherPool) {
  constexpr uint64_t kOther = 6;
  Library other;
  add_source(other, kOther);
  other.next = uint64_t{1} << 44;
  put(get_there(12 * kMiB));
  library.after_freed = [&] {
    std::thread([&] {
      uint64_t address = 0;
      EXPECT_EQ(allocator->allocate(kDevice, {12 * kMiB, {}, kOther}, &address, nullptr), Status::kOk);
    }).join();
  };
  set(kPoolReleased);
  EXPECT_EQ(give_back(), 12 * kMiB);
  EXPECT_EQ(library.ends, 1);
  Library again;
  add_source(again, kPool);
  restart();
}

// Its size is asked for what the allocator will serve: 10 MiB are a segment of their own.
TEST_F(SegmentSourceFaults, ItsSizeIsThatOfTheRoundedRequest) {
  const uint64_t block = get_there(10 * kMiB - 511);
  EXPECT_EQ(library.asked, (std::vector<uint64_t>{10 * kMiB}));
  put(block);
}

TEST_F(SegmentSourceFaults, ATraceHasNoSegmentThatCouldNotBeUsed) {
  const std::string path = ::testing::TempDir() + "segments.trace";
  std::remove(path.c_str());
  std::string error;
  std::unique_ptr<trace::Trace> trace = trace::Trace::open(path, {}, &error);
  ASSERT_NE(trace, nullptr) << error;
  allocator->set_trace(trace.get());
  const uint64_t good = get_there(12 * kMiB);
  for (const uint64_t nowhere : {uint64_t{1} << 47, good + kMiB}) {
    library.next = nowhere;
    EXPECT_EQ(get_there(11 * kMiB), 0u);
  }
  allocator->set_trace(nullptr);
  trace.reset();
  trace::Contents contents;
  ASSERT_TRUE(trace::read(path, &contents, &error)) << error;
  std::remove(path.c_str());
  uint64_t created = 0, released = 0;
  for (const trace::Record& record : contents.records) {
    if (record.kind == trace::Kind::kPageCreate && record.value == CUDA_SUCCESS) created += record.bytes;
    if (record.kind == trace::Kind::kPageRelease && record.value == CUDA_SUCCESS) released += record.bytes;
  }
  EXPECT_EQ(created - released, memory().reserved);
  put(good);
}

}  // namespace
}  // namespace spillway::testing
