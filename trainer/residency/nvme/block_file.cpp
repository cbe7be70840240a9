#include "trainer/residency/nvme/block_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace spillway::trainer {
namespace {

// A descriptor, or -1 with an errno.
int nameless_file(const std::string& folder, int flags) {
  const int made = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC | flags, 0600);
  if (made >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) return made;
  // A file system without such files: one with a name, which it loses at once.
  std::string path = folder + "/.spillway-XXXXXX";
  const int named = ::mkostemp(path.data(), O_CLOEXEC | flags);
  if (named >= 0) ::unlink(path.c_str());
  return named;
}

}  // namespace

std::unique_ptr<BlockFile> BlockFile::make(const std::string& folder, std::string* error) {
  int descriptor = nameless_file(folder, O_DIRECT);
  const bool direct = descriptor >= 0;
  if (!direct && errno == EINVAL) descriptor = nameless_file(folder, 0);
  if (descriptor >= 0) return std::unique_ptr<BlockFile>(new BlockFile(folder, descriptor, direct));
  *error = "no file can be made in '" + folder + "': " + std::strerror(errno);
  return nullptr;
}

BlockFile::~BlockFile() {
  ::close(descriptor_);
}

int BlockFile::fill_with_zeros(uint64_t bytes) const {
  constexpr size_t kPart = 1 << 20;
  const std::unique_ptr<void, decltype(&std::free)> zeros(std::aligned_alloc(kIoAlignment, kPart),
                                                          &std::free);
  if (zeros == nullptr) return ENOMEM;
  std::memset(zeros.get(), 0, kPart);
  for (uint64_t at = reserved_; at < bytes;) {
    const ssize_t written =
        ::pwrite(descriptor_, zeros.get(), std::min<uint64_t>(kPart, bytes - at), off_t(at));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return written < 0 ? errno : ENOSPC;
    at += uint64_t(written);
  }
  return 0;
}

bool BlockFile::reserve(uint64_t bytes, std::string* error) {
  if (bytes <= reserved_) return true;
  int wrong = 0;
  do {
    wrong = ::fallocate(descriptor_, 0, 0, off_t(bytes)) == 0 ? 0 : errno;
  } while (wrong == EINTR);
  if (wrong == EOPNOTSUPP) wrong = fill_with_zeros(bytes);
  if (wrong == 0) {
    reserved_ = bytes;
    return true;
  }
  *error = "'" + folder_ + "' has no " + std::to_string(bytes) + " bytes: " + std::strerror(wrong);
  return false;
}

}  // namespace spillway::trainer
