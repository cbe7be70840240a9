// The file of pages by itself: what it says when the file system refuses.
#include "allocator/tiers/file/page_file.h"

#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <barrier>
#include <cerrno>
#include <filesystem>
#include <span>
#include <thread>

#include "tests/allocator/simulated.h"

namespace spillway::testing {
namespace {

class File : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder); }
  void TearDown() override { std::filesystem::remove_all(folder); }
  std::unique_ptr<PageFile> open(uint64_t bytes) {
    std::string why_not;
    std::unique_ptr<PageFile> file = PageFile::open(folder, bytes, &why_not, [] { return now; });
    EXPECT_NE(file, nullptr) << why_not;
    return file;
  }

  static inline Backoff::Time now{};
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("spillway-page-file-" + std::to_string(::getpid()));
};

class Limited : public File {
 protected:
  void SetUp() override {
    File::SetUp();
    ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before_), 0);
  }
  void TearDown() override {
    let_it_grow();
    File::TearDown();
  }
  void let_it_grow() { ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before_), 0); }
  void let_it_be(uint64_t pages) {
    const rlimit small{pages * PageFile::kPageBytes, before_.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  }
  // Takes a place and writes to it; what is refused is given back.
  static int write(PageFile& file) {
    const std::optional<uint64_t> place = file.take();
    if (!place) return -1;
    const int error = write_to(file, *place);
    if (error != 0) file.give(*place);
    return error;
  }
  static int write_to(PageFile& file, uint64_t place) {
    PageFile::Stored page{.place = place};
    return file.write(page_bytes().data(), &page);
  }
  static uint64_t pages_left(PageFile& file) { return file.free_bytes() / PageFile::kPageBytes; }

 private:
  static std::span<const std::byte> page_bytes() {
    alignas(PageFile::kAlignment) static const std::array<std::byte, PageFile::kPageBytes> kPage{};
    return kPage;
  }
  rlimit before_{};
};

TEST_F(Limited, ADiskThatWasFullIsTriedAgainAfterAWhile) {
  using std::chrono::milliseconds, std::chrono::seconds;
  const auto file = open(8 * PageFile::kPageBytes);
  let_it_be(3);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(write(*file), 0);
  for (const int wait : {1, 2, 4}) {
    EXPECT_EQ(pages_left(*file), 5u) << wait;
    EXPECT_EQ(write(*file), EFBIG);
    EXPECT_EQ(pages_left(*file), 0u) << "what it took and no more";
    EXPECT_EQ(write(*file), -1);
    file->give(1);
    EXPECT_EQ(pages_left(*file), 1u);
    EXPECT_EQ(write(*file), 0) << "a place that the disk has";
    now += seconds(wait) - milliseconds(1);
    EXPECT_EQ(pages_left(*file), 0u) << wait;
    now += milliseconds(1);
  }
  let_it_grow();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(write(*file), 0);
  for (const uint64_t place : {7, 6, 5, 0}) file->give(place);
  let_it_be(6);
  EXPECT_EQ(write(*file), 0) << "the first place that is free";
  EXPECT_EQ(write(*file), 0);
  EXPECT_EQ(write(*file), EFBIG);
  now += seconds(1);
  EXPECT_EQ(pages_left(*file), 2u) << "after a success it is a first refusal again";
}

// A group of writes is under way when the disk refuses one of them.
TEST_F(Limited, ARefusalStandsWhileOtherWritesEnd) {
  const auto file = open(8 * PageFile::kPageBytes);
  let_it_be(3);
  const uint64_t first = file->take().value(), second = file->take().value();
  ASSERT_EQ(write(*file), 0);
  const uint64_t third = file->take().value(), fourth = file->take().value();
  EXPECT_EQ(write_to(*file, fourth), EFBIG);
  EXPECT_EQ(write_to(*file, third), EFBIG);
  EXPECT_EQ(write_to(*file, first), 0) << "which the disk has";
  file->give(fourth);
  file->give(third);
  EXPECT_EQ(pages_left(*file), 0u) << "up to the first that was refused";
  let_it_grow();
  EXPECT_EQ(write_to(*file, second), 0);
  EXPECT_EQ(pages_left(*file), 0u) << "not before it is tried again";
  now += std::chrono::seconds(1);
  EXPECT_EQ(pages_left(*file), 5u);
}

// Memory that is not aligned is refused around the kernel's cache, as every transfer is on some file systems.
// All that began before the first of them was refused go again through the cache.
TEST_F(File, ThreadsThatAreRefusedAroundTheCacheGoThroughIt) {
  constexpr unsigned kThreads = 4, kRounds = 50;
  std::vector<std::byte> memory(PageFile::kPageBytes + PageFile::kAlignment);
  auto* const from = memory.data() + 1;
  for (unsigned round = 0; round < kRounds; ++round) {
    const auto file = open(kThreads * PageFile::kPageBytes);
    std::barrier together(kThreads);
    std::vector<int> errors(kThreads, -1);
    std::vector<std::thread> threads;
    threads.reserve(kThreads);
    for (unsigned t = 0; t < kThreads; ++t)
      threads.emplace_back([&, t] {
        PageFile::Stored page{.place = file->take().value_or(0)};
        together.arrive_and_wait();
        errors[t] = file->write(from, &page);
      });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(errors, std::vector<int>(kThreads, 0)) << round;
  }
}

}  // namespace
}  // namespace spillway::testing
