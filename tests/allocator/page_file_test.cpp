// The file of pages by itself: what it says when the file system refuses.
#include "allocator/page_file.h"

#include <unistd.h>

#include <barrier>
#include <filesystem>
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
    std::unique_ptr<PageFile> file = PageFile::open(folder, bytes, &why_not);
    EXPECT_NE(file, nullptr) << why_not;
    return file;
  }

  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("spillway-page-file-" + std::to_string(::getpid()));
};

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
