// The disk is full, the file is short or wrong, the driver refuses: nothing is lost.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <atomic>
#include <cerrno>

#include "tests/sanitized.h"
#include "tests/strategies/tiers/nvme.h"

namespace spillway::testing {
// A file system that takes O_DIRECT and refuses its transfers, and a disk that fails after the kernel took
// all.
std::atomic<bool> refuses_direct{false}, fails_late{false};
}  // namespace spillway::testing

// In place of the C library's, for this whole program.
extern "C" ssize_t pwrite(int file, const void* from, size_t bytes, off_t offset) {
  if (spillway::testing::refuses_direct && (::fcntl(file, F_GETFL) & O_DIRECT) != 0)
    return errno = EINVAL, -1;
  return ::syscall(SYS_pwrite64, file, from, bytes, offset);
}
extern "C" int fdatasync(int file) {
  if (spillway::testing::fails_late) return errno = EIO, -1;
  return static_cast<int>(::syscall(SYS_fdatasync, file));
}

namespace spillway::testing {
namespace {

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

TEST_F(Nvme, WhatTheKernelTookAndTheDiskDidNotStaysOnTheDevice) {
  const auto blocks = three_blocks();
  refuses_direct = fails_late = true;
  const uint64_t more = get(20 * kMiB);
  fails_late = false;
  EXPECT_EQ(more, 0u);
  EXPECT_NE(story().find("not spill_to_nvme: the file could not be written: Input/output error"),
            std::string::npos)
      << story();
  EXPECT_EQ(in_file(), 0u);
  EXPECT_EQ(file_room_bytes(*allocator), 256 * kMiB) << "the places are free again";
  EXPECT_NE(get(20 * kMiB), 0u) << failure->text;
  for (unsigned i = 0; i < 3; ++i)
    if (touch(blocks[i]) == Status::kOk) {
      EXPECT_TRUE(is_whole(blocks[i], i));
    }
  refuses_direct = false;
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
  const auto unreadable = [&](const char* why) {
    unsigned failed = 0;
    for (const uint64_t block : blocks) {
      const Status status = touch(block);
      failed += status == Status::kFileFailed ? 1 : 0;
      if (status == Status::kOk)
        allocator->done_block(block);
      else
        EXPECT_NE(failure->text.find(why), std::string::npos) << failure->text;
    }
    return failed;
  };
  EXPECT_GE(unreadable("the file has become shorter"), 2u);

  ASSERT_EQ(::pwrite(copy, saved.data(), saved.size(), 0), file.st_size);
  ASSERT_EQ(::pwrite(copy, "x", 1, file.st_size - 100), 1);
  EXPECT_EQ(unreadable("not those that were written"), 1u) << "one byte is wrong";

  ASSERT_EQ(::pwrite(copy, saved.data(), saved.size(), 0), file.st_size);
  ::close(copy);
  for (unsigned i = 0; i < 3; ++i) {
    ASSERT_EQ(touch(blocks[i]), Status::kOk) << failure->text;
    EXPECT_TRUE(is_whole(blocks[i], i));
  }
}

// The pages that were to be filled cannot be unmapped again: they stay where they are, and are nobody
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
  let_time_pass(200);
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

// At each of the driver's calls, once, on the way there and back: nothing is lost, and nothing leaks.
TEST_F(Nvme, SurvivesAFailureOfAnyCall) {
  for (const char* call : {"cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemcpyAsync", "cuEventSynchronize",
                           "cuMemUnmap", "cuEventRecord", "cuMemHostAlloc"}) {
    for (uint64_t n = 1; n < 100; n += kNextFailing) {
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
      let_time_pass(200);
      EXPECT_EQ(file_room_bytes(*allocator), 256 * kMiB);
      if (!fired) break;
    }
  }
}

}  // namespace
}  // namespace spillway::testing
