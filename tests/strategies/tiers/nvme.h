// A device of 32 MiB in computing mode, whose registered blocks go to a real file.
#pragma once
#include <sys/mount.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "allocator/tiers/tiers.h"
#include "strategies/ladder/ladder.h"
#include "tests/strategies/tiers/values.h"

namespace spillway::testing {

inline constexpr uint64_t kBlock = 10 * kMiB;

class Nvme : public Values {
 protected:
  void SetUp() override {
    Values::SetUp();
    folder = std::filesystem::temp_directory_path() / ("spillway-nvme-" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder);
    use_file(256 * kMiB);
  }
  void TearDown() override {
    Values::TearDown();
    ladder.reset();
    ::umount2(folder.c_str(), MNT_DETACH);  // where a test has mounted something
    EXPECT_TRUE(std::filesystem::is_empty(folder)) << "the file has no name";
    std::filesystem::remove_all(folder);
  }
  void use_file(uint64_t bytes) {
    restart();
    spill_to_file(bytes);
  }
  void spill_to_file(uint64_t bytes) {
    std::string why_not;
    ASSERT_TRUE(use_page_file(*allocator, folder, bytes, &why_not, [] { return now; })) << why_not;
    ladder = std::make_unique<Ladder>(*allocator);
    ladder->add(make_stitch());
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
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code gone;
      const std::string target = std::filesystem::read_symlink(entry, gone).string();
      if (target.starts_with(folder.string())) return std::stoi(entry.path().filename().string());
    }
    return -1;
  }

  static inline Backoff::Time now{};
  std::filesystem::path folder;
  std::unique_ptr<Ladder> ladder;
};

}  // namespace spillway::testing
