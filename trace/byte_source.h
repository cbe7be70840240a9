// Bytes of a file by position, read rather than mapped: a file that shrinks meanwhile is an error, not a
// SIGBUS.
#pragma once
#include <unistd.h>

#include <cerrno>
#include <cstdint>

namespace spillway::trace {

class ByteSource {
 public:
  ByteSource(int fd, uint64_t size) : fd_(fd), size_(size) {}
  uint64_t size() const { return size_; }

  // False if the file has fewer bytes or cannot be read there.
  bool read(uint64_t offset, void* to, uint64_t bytes) const {
    auto* at = static_cast<unsigned char*>(to);
    while (bytes > 0) {
      const ssize_t got = ::pread(fd_, at, bytes, static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return false;
      at += got;
      offset += static_cast<uint64_t>(got);
      bytes -= static_cast<uint64_t>(got);
    }
    return true;
  }

 private:
  int fd_;
  uint64_t size_;
};

}  // namespace spillway::trace
