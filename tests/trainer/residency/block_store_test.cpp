// Blocks of real files: what is written comes back, by io_uring and by threads; what fails is tried again,
// and then named.
#include "trainer/residency/nvme/block_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>

#include "tests/trainer/residency/failing_io.h"
#include "tests/trainer/scratch_folder.h"

namespace spillway::trainer {
namespace {

using testing::HasSubstr;
using Kind = IoFault::Kind;

class Buffer {
 public:
  explicit Buffer(size_t bytes)
      : bytes_(bytes), data_(static_cast<std::byte*>(std::aligned_alloc(kIoAlignment, bytes)), &std::free) {}
  Buffer& fill(uint64_t seed) {
    std::mt19937_64 random(seed);
    for (size_t i = 0; i + 8 <= bytes_; i += 8) {
      const uint64_t word = random();
      std::memcpy(data_.get() + i, &word, 8);
    }
    return *this;
  }
  std::byte* data() const { return data_.get(); }
  bool operator==(const Buffer& other) const { return std::memcmp(data(), other.data(), bytes_) == 0; }

 private:
  size_t bytes_;
  std::unique_ptr<std::byte, decltype(&std::free)> data_;
};

class Blocks : public testing::Test {
 protected:
  static constexpr size_t kBytes = 2 * kIoBlock + kIoAlignment;

  Blocks() : store_(BlockStore::open(folder_.file(""), &error_)) {
    EXPECT_NE(store_, nullptr) << error_;
    EXPECT_TRUE(store_->reserve(4 * kBytes, &error_)) << error_;
    piece_ = store_->piece(kBytes);
    written_.fill(7);
  }
  bool write() {
    store_->write(&piece_, written_.data(), &transfer_);
    return store_->wait(&transfer_);
  }
  bool read() {
    store_->read(piece_, read_.data(), &transfer_);
    return store_->wait(&transfer_);
  }
  void expect_kept(const IoFault& fault) {
    FailingIo::arm(fault);
    EXPECT_TRUE(write()) << transfer_.error();
    EXPECT_TRUE(read()) << transfer_.error();
    EXPECT_EQ(FailingIo::fired, 1u);
    EXPECT_EQ(read_, written_);
  }
  std::string read_fault(const IoFault& fault) {
    EXPECT_TRUE(write()) << transfer_.error();
    FailingIo::arm(fault);
    EXPECT_FALSE(read());
    EXPECT_EQ(FailingIo::fired, 3 * kIoAttempts) << "each of three blocks";
    return transfer_.error();
  }

  const ScratchFolder folder_;
  const FailingIo failing_;
  std::string error_;
  std::unique_ptr<BlockStore> store_;
  BlockStore::Piece piece_;
  BlockStore::Transfer transfer_;
  Buffer written_{kBytes}, read_{kBytes};
};

TEST_F(Blocks, ComeBackAndLeaveNoName) {
  EXPECT_TRUE(write() && read()) << transfer_.error();
  EXPECT_EQ(read_, written_);
  EXPECT_TRUE(std::filesystem::is_empty(folder_.file("")));
}

TEST_F(Blocks, AShortReadOrWriteGoesOn) {
  expect_kept({.writes = true, .at = 2, .kind = Kind::kShort, .short_bytes = 3 * kIoAlignment});
  expect_kept({.at = 1, .kind = Kind::kShort, .short_bytes = kIoAlignment});
  expect_kept({.at = 1, .kind = Kind::kShort, .short_bytes = 100});
}

TEST_F(Blocks, WhatFailsOnceIsTriedAgain) {
  expect_kept({.writes = true, .at = 1, .error = EIO});
  expect_kept({.at = 3, .error = EIO});
  expect_kept({.at = 2, .kind = Kind::kFlippedBit});
  expect_kept({.at = 2, .error = EINTR});
}

TEST_F(Blocks, WhatGoesOnFailingIsNamed) {
  EXPECT_THAT(read_fault({.at = 1, .persistent = true, .error = EIO}),
              HasSubstr("a read of 1048576 bytes at 0 of the file in '" + folder_.file("") +
                        "': Input/output error"));
  EXPECT_THAT(read_fault({.at = 1, .persistent = true, .kind = Kind::kFlippedBit}),
              HasSubstr("another checksum"));
  EXPECT_THAT(read_fault({.at = 1, .persistent = true, .error = 0}), HasSubstr("it was cut off"));
  EXPECT_TRUE((FailingIo::arm({}), read())) << "the file itself is sound";
  EXPECT_EQ(read_, written_);
  FailingIo::arm({.writes = true, .at = 1, .persistent = true, .error = ENOSPC});
  EXPECT_FALSE(write());
  EXPECT_THAT(transfer_.error(), HasSubstr("a write of 1048576 bytes at 0"));
  EXPECT_THAT(transfer_.error(), HasSubstr("No space left on device"));
}

TEST_F(Blocks, WithoutSpaceAreRefusedBeforeTheyAreWritten) {
  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  ::getrlimit(RLIMIT_FSIZE, &limit);
  rlimit small = limit;
  small.rlim_cur = 8 * kBytes;
  ::setrlimit(RLIMIT_FSIZE, &small);
  EXPECT_FALSE(store_->reserve(16 * kBytes, &error_));
  ::setrlimit(RLIMIT_FSIZE, &limit);
  std::signal(SIGXFSZ, before);
  EXPECT_THAT(error_, HasSubstr("'" + folder_.file("") + "' has no "));
  EXPECT_TRUE(write() && read()) << "what there was goes on: " << transfer_.error();
}

TEST_F(Blocks, OnAFullDiskAreRefused) {
  const std::string disk = folder_.file("disk");
  std::filesystem::create_directory(disk);
  if (::mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=1m") != 0) GTEST_SKIP() << "needs the right to mount";
  {
    const auto store = BlockStore::open(disk, &error_);
    ASSERT_NE(store, nullptr) << error_;
    EXPECT_FALSE(store->reserve(kBytes, &error_));
    EXPECT_THAT(error_, HasSubstr("No space left on device"));
  }
  ::umount(disk.c_str());
}

TEST_F(Blocks, OfAFolderThatIsNotThereAreRefused) {
  EXPECT_EQ(BlockStore::open(folder_.file("nowhere"), &error_), nullptr);
  EXPECT_THAT(error_, HasSubstr("nowhere': No such file or directory"));
}

TEST_F(Blocks, OfMoreThanTheDepthGoThrough) {
  constexpr size_t kLarge = (kIoDepth + 9) * kIoBlock;
  ASSERT_TRUE(store_->reserve(kLarge, &error_)) << error_;
  BlockStore::Piece piece = store_->piece(kLarge);
  Buffer from(kLarge), to(kLarge);
  store_->write(&piece, from.fill(3).data(), &transfer_);
  ASSERT_TRUE(store_->wait(&transfer_)) << transfer_.error();
  store_->read(piece, to.data(), &transfer_);
  ASSERT_TRUE(store_->wait(&transfer_)) << transfer_.error();
  EXPECT_EQ(from, to);
}

TEST(IoQueue, OfThreadsDoesTheSame) {
  wrap_io_queues([](std::unique_ptr<IoQueue>) { return thread_queue(); });
  const ScratchFolder folder;
  std::string error;
  const auto store = BlockStore::open(folder.file(""), &error);
  wrap_io_queues(nullptr);
  ASSERT_NE(store, nullptr) << error;
  constexpr size_t kBytes = 5 * kIoBlock;
  ASSERT_TRUE(store->reserve(kBytes, &error)) << error;
  BlockStore::Piece piece = store->piece(kBytes);
  Buffer from(kBytes), to(kBytes);
  BlockStore::Transfer transfer;
  store->write(&piece, from.fill(5).data(), &transfer);
  ASSERT_TRUE(store->wait(&transfer)) << transfer.error();
  store->read(piece, to.data(), &transfer);
  ASSERT_TRUE(store->wait(&transfer)) << transfer.error();
  EXPECT_EQ(from, to);
}

}  // namespace
}  // namespace spillway::trainer
