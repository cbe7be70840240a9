// Faults of the file that blocks lie in which lose nothing: it cannot grow for a while, or it ends early and
// has its bytes again afterwards.
//
// Thread-safety: none: a limit of the whole process is changed meanwhile. Ownership: of its folder.
#pragma once
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/allocator/simulated.h"

namespace spillway::testing::tiers {

class FuzzFile {
 public:
  FuzzFile()
      : folder_(std::filesystem::temp_directory_path() / ("spillway-tiers-" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(folder_);
  }
  ~FuzzFile() { std::filesystem::remove_all(folder_); }
  FuzzFile(const FuzzFile&) = delete;
  FuzzFile& operator=(const FuzzFile&) = delete;
  const std::filesystem::path& folder() const { return folder_; }

  template <typename Work>
  void while_full(uint64_t bytes, Work work) {
    rlimit before{};
    ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
    const rlimit small{bytes, before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
    work();
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  }

  // What comes behind `bytes` is put back, so that nothing may be written there meanwhile.
  template <typename Work>
  void while_short(uint64_t bytes, Work work) {
    const int file = open_again();
    struct stat found{};
    if (file < 0 || ::fstat(file, &found) != 0 || found.st_size <= static_cast<off_t>(bytes)) {
      if (file >= 0) ::close(file);
      return work();
    }
    std::vector<char> rest(static_cast<size_t>(found.st_size) - bytes);
    EXPECT_EQ(::pread(file, rest.data(), rest.size(), static_cast<off_t>(bytes)),
              static_cast<ssize_t>(rest.size()));
    EXPECT_EQ(::ftruncate(file, static_cast<off_t>(bytes)), 0);
    while_full(bytes, work);
    EXPECT_EQ(::pwrite(file, rest.data(), rest.size(), static_cast<off_t>(bytes)),
              static_cast<ssize_t>(rest.size()));
    ::close(file);
  }

 private:
  // It has no name, but the process's own descriptor of it has.
  int open_again() const {
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code gone;
      const std::string target = std::filesystem::read_symlink(entry, gone).string();
      if (target.starts_with(folder_.string())) return ::open(entry.path().c_str(), O_RDWR);
    }
    return -1;
  }

  std::filesystem::path folder_;
};

}  // namespace spillway::testing::tiers
