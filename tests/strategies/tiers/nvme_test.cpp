// In computing mode, without a gate: registered blocks that nobody uses go to a real file, and are there, bit
// for bit, when the program says that it uses them again.
#include "tests/strategies/tiers/nvme.h"

#include <sys/stat.h>

#include <functional>
#include <thread>

namespace spillway::testing {
namespace {

// A handle is divided only while launches are held, and for the file they are not.
TEST_F(Nvme, BlocksThatShareAHandleAreNotOffered) {
  handle_rule = {.most_bytes = 16 * kMiB, .share = 2};
  use_file(256 * kMiB);
  allocator->limit(kDevice, 64 * kMiB);
  std::vector<uint64_t> blocks = {get(16 * kMiB)};
  ASSERT_NE(blocks[0], 0u);
  put(blocks[0]);
  blocks = {get(8 * kMiB), get(8 * kMiB)};  // one half of the handle each
  for (const uint64_t block : blocks) ASSERT_EQ(allocator->add_block(block, 8 * kMiB), Status::kOk);
  ASSERT_EQ(memory().reserved, 16 * kMiB);
  allocator->limit(kDevice, 16 * kMiB);
  EXPECT_EQ(get(8 * kMiB), 0u);
  EXPECT_EQ(ladder->counts()[1].tried, 0u);
  for (const uint64_t block : blocks) put(block);
}

TEST_F(Nvme, RoundTripIsBitwise) {
  const auto blocks = three_blocks();
  uint64_t more = get(26 * kMiB);
  ASSERT_NE(more, 0u) << failure->text;
  EXPECT_GE(in_file(), 24 * kMiB);
  EXPECT_EQ(memory().spilled_nvme, in_file());
  EXPECT_LE(memory().reserved, 32 * kMiB);
  fill(more, 26 * kMiB, 0xEE);
  put(more);
  for (int round = 0; round < 3; ++round) {
    for (unsigned i = 0; i < 3; ++i) {
      ASSERT_EQ(touch(blocks[i]), Status::kOk) << failure->text;
      EXPECT_TRUE(is_whole(blocks[i], i)) << round << " " << i;
      EXPECT_EQ(allocator->done_block(blocks[i]), Status::kOk);
    }
    EXPECT_EQ(in_file(), 0u) << round;
    more = get(20 * kMiB);
    ASSERT_NE(more, 0u) << failure->text;
    put(more);
  }
  for (const uint64_t block : blocks) put(block);
  let_time_pass(200);
  EXPECT_EQ(in_file(), 0u);
}

TEST_F(Nvme, WhatIsInUseOrNotRegisteredStays) {
  auto blocks = three_blocks();
  ASSERT_EQ(touch(blocks[0]), Status::kOk);
  ASSERT_EQ(allocator->remove_block(blocks[1], nullptr), Status::kOk);
  EXPECT_EQ(get(14 * kMiB), 0u);
  EXPECT_NE(story().find("only 10.00 MiB are registered and not in use"), std::string::npos) << story();
  EXPECT_NE(get(10 * kMiB), 0u) << failure->text;
  EXPECT_GE(in_file(), 8 * kMiB);
  EXPECT_TRUE(is_whole(blocks[0], 0));
  EXPECT_TRUE(is_whole(blocks[1], 1));
}

TEST_F(Nvme, AFreedBlockIsRegisteredNoMore) {
  auto blocks = three_blocks();
  put(blocks[2]);
  const uint64_t again = get(kBlock);
  ASSERT_EQ(again, blocks[2]) << "the same address";
  fill(again, kBlock, 0x55);
  EXPECT_EQ(touch(again), Status::kNotFound);
  ASSERT_NE(get(18 * kMiB), 0u) << failure->text;
  EXPECT_TRUE(holds(again, kBlock, 0x55)) << "it is in use for all that is known";
  EXPECT_EQ(allocator->add_block(again, kBlock), Status::kOk);
}

TEST_F(Nvme, OnlyWhatWasRegisteredOfABlockGoes) {
  const uint64_t block = get(30 * kMiB);
  fill(block, 30 * kMiB, 0x21);
  ASSERT_EQ(allocator->add_block(block, 7 * kMiB), Status::kOk);
  EXPECT_EQ(get(10 * kMiB), 0u);
  ASSERT_NE(get(8 * kMiB), 0u) << failure->text;
  EXPECT_EQ(in_file(), 6 * kMiB);
  EXPECT_TRUE(holds(block + 8 * kMiB, 22 * kMiB, 0x21));
}

TEST_F(Nvme, ATouchClimbsTheLadderForItsRoom) {
  const auto blocks = three_blocks();
  ASSERT_NE(get(18 * kMiB), 0u) << failure->text;
  for (int round = 0; round < 4; ++round) {
    for (unsigned i = 0; i < 3; ++i) {
      ASSERT_EQ(touch(blocks[i]), Status::kOk) << "one of the others goes: " << failure->text;
      EXPECT_TRUE(is_whole(blocks[i], i));
      EXPECT_EQ(allocator->done_block(blocks[i]), Status::kOk);
      EXPECT_GT(in_file(), 0u);
      EXPECT_LE(memory().reserved, 32 * kMiB);
    }
  }
}

TEST_F(Nvme, ATouchWithoutRoomFailsAndASecondOneSucceeds) {
  const auto blocks = three_blocks();
  const uint64_t more = get(30 * kMiB);
  ASSERT_NE(more, 0u) << failure->text;
  ASSERT_EQ(touch(blocks[0]), Status::kOutOfMemory);
  EXPECT_EQ(failure->event.requested_bytes, kBlock);
  EXPECT_EQ(allocator->done_block(blocks[0]), Status::kInvalid) << "no use has begun";
  EXPECT_EQ(touch(blocks[0]), Status::kOutOfMemory);
  EXPECT_EQ(allocator->remove_block(blocks[0], &failure), Status::kOutOfMemory);
  put(more);
  for (unsigned i = 0; i < 3; ++i) {
    ASSERT_EQ(touch(blocks[i]), Status::kOk) << failure->text;
    EXPECT_TRUE(is_whole(blocks[i], i));
  }
}

// What others have taken of the card meanwhile, it looks at itself.
TEST_F(Nvme, ATouchLeavesWhatIsReserved) {
  const uint64_t reserve = 16 * kMiB;
  spillway_budget budget{};
  budget.limit_bytes = UINT64_MAX;
  budget.reserve_bytes = reserve;
  allocator->set_budget(&budget);
  const auto blocks = three_blocks();
  const uint64_t more = get(30 * kMiB);
  ASSERT_NE(more, 0u) << failure->text;
  ASSERT_EQ(in_file(), 30 * kMiB);
  put(more);
  ASSERT_EQ(allocator->empty_cache(kDevice), 30 * kMiB);
  const uint64_t others = free_bytes() - reserve - 4 * kMiB;
  ASSERT_EQ(control->charge(0, "others", others), CUDA_SUCCESS);
  EXPECT_EQ(touch(blocks[0]), Status::kOutOfMemory) << "four beside the reserve";
  EXPECT_GE(free_bytes(), reserve);
  ASSERT_EQ(control->discharge(0, "others", others), CUDA_SUCCESS);
  for (unsigned i = 0; i < 3; ++i) {
    ASSERT_EQ(touch(blocks[i]), Status::kOk) << failure->text;
    EXPECT_TRUE(is_whole(blocks[i], i));
  }
  restart();
}

// Who touches a block has no step to run again: a move would be left chosen for somebody else.
TEST_F(Nvme, ATouchChoosesNoPlanMove) {
  struct Move final : Strategy {
    StrategyInfo info() const noexcept override { return {"split", Guarantee::kBitExact, kNeedsUnwinding}; }
    Offer offer(const PendingRequest&) noexcept override { return {30 * kMiB, 1, false}; }
    Relief relieve(PendingRequest&) noexcept override { return {0, true, ""}; }
  };
  const StrategyId move = ladder->add(std::make_unique<Move>());
  const auto blocks = three_blocks();
  const uint64_t more = get(30 * kMiB);
  ASSERT_NE(more, 0u) << failure->text;
  EXPECT_EQ(touch(blocks[0]), Status::kOutOfMemory);
  EXPECT_EQ(ladder->take_chosen_move(nullptr), StrategyId::kNone);
  EXPECT_EQ(get(10 * kMiB), 0u);
  EXPECT_EQ(ladder->take_chosen_move(nullptr), move) << "a request for memory does";
  put(more);
}

TEST_F(Nvme, WhatIsToBeSharedIsReadBackAndStays) {
  const auto blocks = three_blocks();
  ASSERT_NE(get(18 * kMiB), 0u) << failure->text;
  ASSERT_GE(in_file(), 16 * kMiB);
  SharedBlock shared;
  std::string why_not;
  ASSERT_EQ(allocator->share(blocks[0], &shared, &why_not), Status::kOk) << why_not;
  check();
  EXPECT_TRUE(is_whole(blocks[0], 0));
  EXPECT_EQ(allocator->done_block(blocks[0]), Status::kInvalid) << "no use has begun";
  EXPECT_EQ(allocator->share(blocks[1], &shared, &why_not), Status::kOutOfMemory) << "what is shared stays";
  EXPECT_NE(why_not.find("cannot come back to be shared"), std::string::npos) << why_not;
}

TEST_F(Nvme, WorkThatWasQueuedBeforeDoneIsWaitedFor) {
  const auto blocks = three_blocks();
  const StreamId stream = new_stream();
  for (const uint64_t block : blocks) {
    ASSERT_EQ(touch(block), Status::kOk);
    launch(stream, block, kBlock, 50'000);
    ASSERT_EQ(allocator->done_block(block), Status::kOk);
  }
  EXPECT_NE(get(20 * kMiB), 0u) << failure->text;
  EXPECT_EQ(text(control->violations), "");
}

TEST_F(Nvme, AFreedOrRemovedBlockGivesItsPlaceBack) {
  use_file(32 * kMiB);
  for (int round = 0; round < 5; ++round) {
    auto blocks = three_blocks();
    const uint64_t more = get(30 * kMiB);
    ASSERT_NE(more, 0u) << round << failure->text;
    ASSERT_EQ(in_file(), 30 * kMiB);
    put(blocks[0]);
    put(more);
    ASSERT_EQ(allocator->remove_block(blocks[1], &failure), Status::kOk);
    EXPECT_TRUE(is_whole(blocks[1], 1));
    ASSERT_EQ(touch(blocks[2]), Status::kOk);
    put(blocks[1]);
    put(blocks[2]);
    let_time_pass(200);
    EXPECT_EQ(file_room_bytes(*allocator), 32 * kMiB);
  }
}

TEST_F(Nvme, TheSizeBoundsIt) {
  use_file(9 * kMiB);
  const auto blocks = three_blocks();
  EXPECT_EQ(get(14 * kMiB), 0u);
  EXPECT_NE(story().find("and the file takes 8.00 MiB more"), std::string::npos) << story();
  ASSERT_NE(get(10 * kMiB), 0u) << failure->text;
  EXPECT_EQ(in_file(), 8 * kMiB);
  struct stat file{};
  const int open_file = descriptor();
  ASSERT_GE(open_file, 0);
  ASSERT_EQ(::fstat(open_file, &file), 0);
  EXPECT_LE(file.st_size, static_cast<off_t>(9 * kMiB));
}

// Runs `meanwhile` when the blocks that go to the file are chosen and nothing of them has gone yet.
class StoreWhile final : public Strategy {
 public:
  explicit StoreWhile(std::function<bool()> meanwhile) : meanwhile_(std::move(meanwhile)) {}
  StrategyInfo info() const noexcept override { return {"store_while"}; }
  Offer offer(const PendingRequest& request) noexcept override { return {request.event.short_bytes, 1}; }
  Relief relieve(PendingRequest& request) noexcept override {
    return {request.spill({.tier = Tier::kNvme, .most_bytes = 64 * kMiB, .come_to_rest = meanwhile_}).bytes};
  }

 private:
  std::function<bool()> meanwhile_;
};

// A driver whose copies begin when somebody waits for them.
class LateCopies : public Nvme {
 protected:
  void SetUp() override {
    Nvme::SetUp();
    driver = table;
    driver.cuMemcpyAsync = [](CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
      queued.push_back({to, from, bytes, stream});
      return CUDA_SUCCESS;
    };
    driver.cuEventSynchronize = [](CUevent event) {
      for (const Copy& copy : std::exchange(queued, {}))
        if (copied(copy) != CUDA_SUCCESS) return CUDA_ERROR_UNKNOWN;
      return simulated_table().cuEventSynchronize(event);
    };
    allocator = std::make_unique<Allocator>(driver);
    spill_to_file(256 * kMiB);
  }
  struct Copy {
    CUdeviceptr to, from;
    size_t bytes;
    CUstream stream;
  };
  static CUresult copied(const Copy& copy) {
    const CUresult result = simulated_table().cuMemcpyAsync(copy.to, copy.from, copy.bytes, copy.stream);
    return result == CUDA_SUCCESS ? simulated_table().cuStreamSynchronize(copy.stream) : result;
  }
  static inline std::vector<Copy> queued;
  driver::Table driver;
};

// More than both buffers hold: each serves again, when its copy is over.
TEST_F(LateCopies, ABuffersBytesStayUntilTheyAreCopied) {
  constexpr uint64_t kBytes = 28 * kMiB;
  const uint64_t block = get(kBytes);
  for (uint64_t at = 0; at < kBytes; at += kMiB)
    fill(block + at, kMiB, static_cast<unsigned char>(1 + at / kMiB));
  ASSERT_EQ(allocator->add_block(block, kBytes), Status::kOk);
  const uint64_t more = get(30 * kMiB);
  ASSERT_NE(more, 0u) << failure->text;
  ASSERT_EQ(in_file(), kBytes) << "in one piece";
  fill(more, 30 * kMiB, 0xEE);
  put(more);
  ASSERT_EQ(touch(block), Status::kOk) << failure->text;
  for (uint64_t at = 0; at < kBytes; at += kMiB)
    EXPECT_TRUE(holds(block + at, kMiB, static_cast<unsigned char>(1 + at / kMiB))) << at / kMiB;
}

TEST_F(Nvme, ATouchThatRacesWithAFreeEnds) {
  for (int round = 0; round < 20; ++round) {
    use_file(256 * kMiB);
    const auto blocks = three_blocks();
    Status touched = Status::kOk;
    std::thread toucher;
    Ladder alone(*allocator);
    alone.add(std::make_unique<StoreWhile>([&] {
      if (toucher.joinable()) return true;
      toucher = std::thread([&] { touched = allocator->touch_block(blocks[2], nullptr); });
      while (allocator->done_block(blocks[2]) != Status::kOk) std::this_thread::yield();
      return allocator->free(blocks[2]) == Status::kOk;  // the touch waits for the move, or is about to
    }));
    allocator->set_handler(&alone);
    const uint64_t more = get(26 * kMiB);
    EXPECT_NE(more, 0u) << failure->text;
    toucher.join();
    EXPECT_EQ(touched, Status::kNotFound);
    allocator->set_handler(ladder.get());
    put(more);
    for (const unsigned i : {0, 1}) {
      ASSERT_EQ(touch(blocks[i]), Status::kOk) << failure->text;
      EXPECT_TRUE(is_whole(blocks[i], i));
    }
  }
}

TEST_F(Nvme, ThreadsTouchWhileOthersAreShort) {
  const auto blocks = three_blocks();
  std::vector<std::thread> threads;
  threads.reserve(3);
  std::atomic<unsigned> wrong{0};
  for (unsigned t = 0; t < 3; ++t)
    threads.emplace_back([&, t] {
      CUcontext context = nullptr;
      table.cuDevicePrimaryCtxRetain(&context, 0);
      table.cuCtxSetCurrent(context);
      for (unsigned round = 0; round < 60; ++round) {
        const unsigned i = (t + round) % 3;
        FailurePtr unread;
        const Status status = allocator->touch_block(blocks[i], &unread);
        if (status == Status::kOk) {
          if (!is_whole(blocks[i], i)) ++wrong;
          allocator->done_block(blocks[i]);
        } else if (status != Status::kOutOfMemory) {
          ++wrong;
        }
        uint64_t address = 0;
        if (allocator->allocate(kDevice, {12 * kMiB, {}, 0}, &address, &unread) == Status::kOk)
          allocator->free(address);
      }
      table.cuDevicePrimaryCtxRelease(0);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0u);
  check();
}

}  // namespace
}  // namespace spillway::testing
