// In computing mode, without a gate: registered blocks that nobody uses go to a real file, and are there, bit
// for bit, when the program says that it uses them again.
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <thread>

#include "spillway/allocator/spill.h"
#include "spillway/strategies/ladder.h"
#include "tests/strategies/values.h"

namespace spillway::testing {
namespace {
namespace fs = std::filesystem;

constexpr uint64_t kBlock = 10 * kMiB;

class Nvme : public Values {
 protected:
  void SetUp() override {
    Values::SetUp();
    folder = fs::temp_directory_path() / ("spillway-nvme-" + std::to_string(::getpid()));
    fs::create_directories(folder);
    use_file(256 * kMiB);
  }
  void TearDown() override {
    Values::TearDown();
    ladder.reset();
    ::umount2(folder.c_str(), MNT_DETACH);  // where a test has mounted something
    EXPECT_TRUE(fs::is_empty(folder)) << "the file has no name";
    fs::remove_all(folder);
  }
  void use_file(uint64_t bytes) {
    restart();
    std::string why_not;
    ASSERT_TRUE(use_page_file(*allocator, folder, bytes, &why_not, [] { return now; })) << why_not;
    ladder = std::make_unique<Ladder>(*allocator);
    ladder->add(make_stitch(*allocator));
    ladder->add(make_spill_to_nvme(*allocator, {}));
    allocator->set_handler(ladder.get());
    allocator->limit(kDevice, 32 * kMiB);
  }
  // Three of ten MiB on a device of 32, registered, each page with bytes of its own.
  std::vector<uint64_t> three_blocks() {
    std::vector<uint64_t> blocks;
    for (unsigned i = 0; i < 3; ++i) {
      blocks.push_back(get(kBlock));
      for (uint64_t page = 0; page < kBlock / kMiB; ++page)
        fill(blocks.back() + page * kMiB, kMiB, value(i, page));
      EXPECT_EQ(allocator->add_block(blocks.back(), kBlock), Status::kOk);
    }
    return blocks;
  }
  static unsigned char value(unsigned block, uint64_t page) {
    return static_cast<unsigned char>(1 + block * 16 + page);
  }
  bool is_whole(uint64_t address, unsigned block) {
    bool whole = true;
    for (uint64_t page = 0; page < kBlock / kMiB; ++page)
      whole = whole && holds(address + page * kMiB, kMiB, value(block, page));
    return whole;
  }
  Status touch(uint64_t address) {
    failure.reset();
    const Status status = allocator->touch_block(address, &failure);
    check();
    return status;
  }
  uint64_t in_file() { return spilled_bytes(*allocator, Tier::kNvme); }
  uint64_t free_bytes() {
    size_t free = 0, total = 0;
    EXPECT_EQ(table.cuMemGetInfo(&free, &total), CUDA_SUCCESS);
    return free;
  }
  std::string story() { return failure == nullptr ? "" : ladder->story_of(failure->event.incident); }
  // The open file without a name in our folder.
  int descriptor() const {
    for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
      std::error_code gone;
      const std::string target = fs::read_symlink(entry, gone).string();
      if (target.starts_with(folder.string())) return std::stoi(entry.path().filename().string());
    }
    return -1;
  }

  static inline Backoff::Time now{};
  fs::path folder;
  std::unique_ptr<Ladder> ladder;
};

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
  for (int i = 0; i < 100; ++i) put(get(512));
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
    Offer offer(const OomEvent&) noexcept override { return {30 * kMiB, 1, false}; }
    Relief relieve(const OomEvent&, Reservation&) noexcept override { return {0, true, ""}; }
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
  EXPECT_NE(why_not.find("can not come back to be shared"), std::string::npos) << why_not;
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
    for (int i = 0; i < 100; ++i) put(get(512));
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

// Where a disk is full every page is refused; a limit of the process's refuses the same way, without a
// signal.
TEST_F(Nvme, AWriteThatFailsLeavesTheBlockOnTheDevice) {
  const auto blocks = three_blocks();
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{6 * kMiB, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_EQ(get(20 * kMiB), 0u);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_NE(story().find("not spill_to_nvme: the file could not be written: File too large"),
            std::string::npos)
      << story();
  EXPECT_EQ(in_file(), 0u);
  EXPECT_EQ(memory().spilled, 0u);
  for (unsigned i = 0; i < 3; ++i) EXPECT_TRUE(is_whole(blocks[i], i));
  EXPECT_EQ(file_room_bytes(*allocator), 6 * kMiB) << "no more is offered";
  EXPECT_NE(get(8 * kMiB), 0u) << failure->text;
  EXPECT_EQ(get(8 * kMiB), 0u) << "not yet";
  now += std::chrono::seconds(1);
  EXPECT_NE(get(8 * kMiB), 0u) << failure->text;
}

TEST_F(Nvme, AFullDiskTakesWhatItHasRoomFor) {
  if (::mount("tmpfs", folder.c_str(), "tmpfs", 0, "size=15m") != 0)
    GTEST_SKIP() << "only root may mount a disk this small";
  use_file(64 * kMiB);
  const auto blocks = three_blocks();
  EXPECT_EQ(get(20 * kMiB), 0u);
  EXPECT_EQ(in_file(), kBlock);
  EXPECT_NE(story().find("not spill_to_nvme: "), std::string::npos) << story();
  EXPECT_EQ(file_room_bytes(*allocator) / kBlock, 0u) << "no more is offered";
  for (unsigned i = 0; i < 3; ++i) {
    ASSERT_EQ(touch(blocks[i]), Status::kOk) << failure->text;
    EXPECT_TRUE(is_whole(blocks[i], i));
  }
  EXPECT_NE(file_trouble(*allocator).find("No space left"), std::string::npos) << file_trouble(*allocator);
}

TEST_F(Nvme, AReadThatFailsLosesNothing) {
  const auto blocks = three_blocks();
  const uint64_t more = get(20 * kMiB);
  ASSERT_NE(more, 0u) << failure->text;
  put(more);
  const std::string path = "/proc/self/fd/" + std::to_string(descriptor());
  struct stat file{};
  ASSERT_EQ(::stat(path.c_str(), &file), 0);
  std::vector<char> saved(static_cast<size_t>(file.st_size));
  const int copy = ::open(path.c_str(), O_RDWR);
  ASSERT_EQ(::pread(copy, saved.data(), saved.size(), 0), file.st_size);

  ASSERT_EQ(::ftruncate(copy, static_cast<off_t>(kMiB)), 0);
  unsigned failed = 0;
  for (const uint64_t block : blocks) {
    const Status status = touch(block);
    failed += status == Status::kFileFailed ? 1 : 0;
    if (status == Status::kOk)
      allocator->done_block(block);
    else
      EXPECT_NE(failure->text.find("the file has become shorter"), std::string::npos) << failure->text;
  }
  EXPECT_GE(failed, 2u);

  ASSERT_EQ(::pwrite(copy, saved.data(), saved.size(), 0), file.st_size);
  ASSERT_EQ(::pwrite(copy, "x", 1, file.st_size - 100), 1);
  failed = 0;
  for (const uint64_t block : blocks) {
    const Status status = touch(block);
    failed += status == Status::kFileFailed ? 1 : 0;
    if (status == Status::kOk)
      allocator->done_block(block);
    else
      EXPECT_NE(failure->text.find("not those that were written"), std::string::npos) << failure->text;
  }
  EXPECT_EQ(failed, 1u) << "one byte is wrong";

  ASSERT_EQ(::pwrite(copy, saved.data(), saved.size(), 0), file.st_size);
  ::close(copy);
  for (unsigned i = 0; i < 3; ++i) {
    ASSERT_EQ(touch(blocks[i]), Status::kOk) << failure->text;
    EXPECT_TRUE(is_whole(blocks[i], i));
  }
}

// The pages that were to be filled can not be unmapped again: they stay where they are, and are nobody
// else's.
TEST_F(Nvme, AReadThatFailsWhereNothingCanBeUnmappedLosesNothing) {
  const auto blocks = three_blocks();
  const uint64_t more = get(28 * kMiB);
  ASSERT_NE(more, 0u) << failure->text;
  put(more);
  allocator->empty_cache(kDevice);  // what is idle could not be stitched either
  const std::string path = "/proc/self/fd/" + std::to_string(descriptor());
  const int copy = ::open(path.c_str(), O_RDWR);
  std::vector<char> saved(30 * kMiB);
  const ssize_t size = ::pread(copy, saved.data(), saved.size(), 0);
  ASSERT_EQ(::ftruncate(copy, 0), 0);
  control->fail_call(1, "cuMemUnmap", 1, CUDA_ERROR_UNKNOWN);
  for (const uint64_t block : blocks) {
    EXPECT_EQ(touch(block), Status::kFileFailed);
    EXPECT_NE(failure->text.find("the file has become shorter"), std::string::npos) << failure->text;
    EXPECT_EQ(touch(block), Status::kFileFailed) << "no pages are asked for again";
  }
  control->fail_call(0, nullptr, 0, CUDA_SUCCESS);
  EXPECT_EQ(touch(blocks[2]), Status::kFileFailed) << "its pages can be had now";
  put(blocks[1]);
  const uint64_t other = get(16 * kMiB);
  ASSERT_NE(other, 0u) << failure->text;
  fill(other, 16 * kMiB, 0xEE);
  ASSERT_EQ(::pwrite(copy, saved.data(), static_cast<size_t>(size), 0), size);
  ::close(copy);
  ASSERT_EQ(touch(blocks[0]), Status::kOk) << failure->text;
  EXPECT_TRUE(is_whole(blocks[0], 0));
  EXPECT_TRUE(holds(other, 16 * kMiB, 0xEE));
  put(other);
  ASSERT_EQ(touch(blocks[2]), Status::kOk) << failure->text;
  EXPECT_TRUE(is_whole(blocks[2], 2));
  for (const uint64_t block : {blocks[0], blocks[2]}) put(block);
  for (int i = 0; i < 100; ++i) put(get(512));
  EXPECT_EQ(file_room_bytes(*allocator), 256 * kMiB);
  allocator->empty_cache(kDevice);
  EXPECT_EQ(memory().reserved, 0u);
}

TEST_F(Nvme, AFolderThatCanNotBeUsedIsRefused) {
  std::string why_not;
  EXPECT_FALSE(use_page_file(*allocator, folder / "none", 64 * kMiB, &why_not));
  EXPECT_NE(why_not.find("there is no folder"), std::string::npos) << why_not;
  EXPECT_FALSE(use_page_file(*allocator, "/proc", 64 * kMiB, &why_not));
  EXPECT_NE(why_not.find("no file can be made in '/proc'"), std::string::npos) << why_not;
}

// Runs `meanwhile` when the blocks that go to the file are chosen and nothing of them has gone yet.
class StoreWhile final : public Strategy {
 public:
  StoreWhile(Allocator& allocator, std::function<bool()> meanwhile)
      : allocator_(allocator), meanwhile_(std::move(meanwhile)) {}
  StrategyInfo info() const noexcept override { return {"store_while"}; }
  Offer offer(const OomEvent& event) noexcept override { return {event.short_bytes, 1}; }
  Relief relieve(const OomEvent& event, Reservation& reservation) noexcept override {
    return {spill(allocator_, event, reservation,
                  {.tier = Tier::kNvme, .most_bytes = 64 * kMiB, .come_to_rest = meanwhile_})};
  }

 private:
  Allocator& allocator_;
  std::function<bool()> meanwhile_;
};

TEST_F(Nvme, ATouchThatRacesWithAFreeEnds) {
  for (int round = 0; round < 20; ++round) {
    use_file(256 * kMiB);
    const auto blocks = three_blocks();
    Status touched = Status::kOk;
    std::thread toucher;
    Ladder alone(*allocator);
    alone.add(std::make_unique<StoreWhile>(*allocator, [&] {
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

// At each of the driver's calls, once, on the way there and back: nothing is lost, and nothing leaks.
TEST_F(Nvme, SurvivesAFailureOfAnyCall) {
  for (const char* call : {"cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemcpyAsync", "cuEventSynchronize",
                           "cuMemUnmap", "cuEventRecord", "cuMemHostAlloc"}) {
    for (uint64_t n = 1; n < 100; ++n) {
      use_file(256 * kMiB);
      const auto blocks = three_blocks();
      const uint64_t before = counts().injected_failures;
      control->fail_call(n, call, 0, CUDA_ERROR_OUT_OF_MEMORY);
      if (const uint64_t more = get(20 * kMiB); more != 0) put(more);
      for (const uint64_t block : blocks)
        if (touch(block) == Status::kOk) allocator->done_block(block);
      control->fail_call(0, nullptr, 0, CUDA_SUCCESS);
      const bool fired = counts().injected_failures != before;
      ASSERT_TRUE(fired || n > 1) << call << " is never called";
      for (unsigned i = 0; i < 3; ++i) {
        ASSERT_EQ(touch(blocks[i]), Status::kOk) << call << " " << n << ": " << failure->text;
        EXPECT_TRUE(is_whole(blocks[i], i)) << call << " " << n;
        allocator->done_block(blocks[i]);
      }
      for (const uint64_t block : blocks) put(block);
      for (int i = 0; i < 100; ++i) put(get(512));
      EXPECT_EQ(file_room_bytes(*allocator), 256 * kMiB);
      if (!fired) break;
    }
  }
}

}  // namespace
}  // namespace spillway::testing
