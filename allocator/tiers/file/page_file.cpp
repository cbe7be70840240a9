#include "allocator/tiers/file/page_file.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/crc.hpp>
#include <cerrno>
#include <cstring>
#include <system_error>

namespace spillway {
namespace {

std::string text_of(int error) {
  return std::generic_category().message(error);
}

// Where the file system makes no file without a name, it has one for a moment.
int open_without_name(const std::string& folder, int flags) {
  const int descriptor = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC | flags, 0600);
  if (descriptor >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) return descriptor;
  std::string name = folder + "/spillway-XXXXXX";
  // The flags come later: where they are refused the file would have been made, and keep its name.
  const int named = ::mkostemp(name.data(), O_CLOEXEC);
  if (named < 0) return named;
  ::unlink(name.c_str());
  if (flags == 0 || ::fcntl(named, F_SETFL, ::fcntl(named, F_GETFL) | flags) == 0) return named;
  const int error = errno;
  ::close(named);
  errno = error;
  return -1;
}

// A write beyond the limit would end the program by a signal.
bool passes_limit(uint64_t end) {
  rlimit limit{};
  return ::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && end > limit.rlim_cur;
}

#if defined(__x86_64__)
[[gnu::target("sse4.2")]] uint32_t checksum_by_instruction(const std::byte* bytes, size_t count) {
  uint64_t sum = 0xFFFFFFFF;
  for (; count >= sizeof(uint64_t); bytes += sizeof(uint64_t), count -= sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes, sizeof word);
    sum = __builtin_ia32_crc32di(sum, word);
  }
  auto last = static_cast<uint32_t>(sum);
  for (; count != 0; ++bytes, --count) last = __builtin_ia32_crc32qi(last, static_cast<uint8_t>(*bytes));
  return ~last;
}
#endif

}  // namespace

uint32_t checksum_of(const std::byte* bytes, size_t count) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) return checksum_by_instruction(bytes, count);
#endif
  boost::crc_optimal<32, 0x1EDC6F41, 0xFFFFFFFF, 0xFFFFFFFF, true, true> sum;
  sum.process_bytes(bytes, count);
  return sum.checksum();
}

std::unique_ptr<PageFile> PageFile::open(const std::string& folder, uint64_t most_bytes, std::string* why_not,
                                         Backoff::Now now) {
  struct stat found{};
  if (::stat(folder.c_str(), &found) != 0 || !S_ISDIR(found.st_mode)) {
    *why_not = "there is no folder '" + folder + "'";
    return nullptr;
  }
  int descriptor = open_without_name(folder, O_DIRECT);
  const bool direct = descriptor >= 0;
  if (!direct) descriptor = open_without_name(folder, 0);
  if (descriptor < 0) {
    *why_not = "no file can be made in '" + folder + "': " + text_of(errno);
    return nullptr;
  }
  std::unique_ptr<PageFile> file(new PageFile(descriptor, most_bytes / kPageBytes, now));
  file->direct_.store(direct);
  return file;
}

PageFile::~PageFile() {
  ::close(descriptor_);
}

uint64_t PageFile::most_now() const {
  return backoff_.waits(now_()) ? std::min(most_, refused_at_) : most_;
}

uint64_t PageFile::free_bytes() {
  const Locked guard(mutex_);
  const uint64_t taken = end_ - free_.size(), most = most_now();
  return taken < most ? (most - taken) * kPageBytes : 0;
}

std::optional<uint64_t> PageFile::take() {
  const Locked guard(mutex_);
  if (end_ - free_.size() >= most_now()) return std::nullopt;
  if (free_.empty()) return end_++;
  const uint64_t place = free_.top();
  free_.pop();
  return place;
}

void PageFile::give(uint64_t place) {
  const Locked guard(mutex_);
  free_.push(place);
}

// Some file systems take the flag and refuse the transfer. Another thread's may have been refused first: then
// this one, which began with the flag, is tried again too.
bool PageFile::leave_direct(int error, bool was_direct) {
  if (error != EINVAL || !was_direct) return false;
  const Locked guard(mutex_);
  if (!direct_.load()) return true;
  const int flags = ::fcntl(descriptor_, F_GETFL);
  if (flags < 0 || ::fcntl(descriptor_, F_SETFL, flags & ~O_DIRECT) != 0) return false;
  direct_.store(false);
  return true;
}

int PageFile::write_all(const std::byte* from, uint64_t offset) {
  if (passes_limit(offset + kPageBytes)) return EFBIG;
  for (uint64_t done = 0; done < kPageBytes;) {
    const bool direct = direct_.load();
    const ssize_t count =
        ::pwrite(descriptor_, from + done, kPageBytes - done, static_cast<off_t>(offset + done));
    if (count > 0)
      done += static_cast<uint64_t>(count);
    else if (count == 0)
      return ENOSPC;
    else if (errno != EINTR && !leave_direct(errno, direct))
      return errno;
  }
  return 0;
}

int PageFile::read_all(std::byte* to, uint64_t offset) {
  for (uint64_t done = 0; done < kPageBytes;) {
    const bool direct = direct_.load();
    const ssize_t count =
        ::pread(descriptor_, to + done, kPageBytes - done, static_cast<off_t>(offset + done));
    if (count > 0)
      done += static_cast<uint64_t>(count);
    else if (count == 0)
      return ENODATA;
    else if (errno != EINTR && !leave_direct(errno, direct))
      return errno;
  }
  return 0;
}

int PageFile::write(const std::byte* from, Stored* page) {
  page->checksum = checksum_of(from, kPageBytes);
  const int error = write_all(from, page->place * kPageBytes);
  last_error_.store(error);
  note_write(page->place, error);
  return error;
}

// Places are taken from the first on, so that what lies before a place that was refused is what the disk
// took.
void PageFile::note_write(uint64_t place, int error) {
  const Locked guard(mutex_);
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    refused_at_ = backoff_.waits(now_()) ? std::min(refused_at_, place) : place;
    backoff_.refused(now_());
  } else if (error == 0 && place >= refused_at_ && !backoff_.waits(now_())) {
    refused_at_ = UINT64_MAX;
    backoff_.served();
  }
}

int PageFile::read(const Stored& page, std::byte* to) {
  const int error = read_all(to, page.place * kPageBytes);
  return error != 0 || checksum_of(to, kPageBytes) == page.checksum ? error : EBADMSG;
}

// What the kernel still has may meet an error of the disk's only on its way there.
int PageFile::finish() {
  if (direct_.load()) return 0;
  if (::fdatasync(descriptor_) != 0) {
    last_error_.store(errno);
    return last_error_.load();
  }
  ::posix_fadvise(descriptor_, 0, 0, POSIX_FADV_DONTNEED);
  return 0;
}

}  // namespace spillway
