// A file in memory that holds one input after the other, for readers that take a path.
#pragma once
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

namespace spillway::fuzz {

class AnonymousFile {
 public:
  AnonymousFile()
      : descriptor_(::memfd_create("fuzz", MFD_CLOEXEC)),
        path_("/proc/self/fd/" + std::to_string(descriptor_)) {
    if (descriptor_ < 0) std::abort();
  }
  AnonymousFile(const AnonymousFile&) = delete;
  AnonymousFile& operator=(const AnonymousFile&) = delete;
  ~AnonymousFile() { ::close(descriptor_); }

  void hold(const uint8_t* data, size_t size) const {
    if (::ftruncate(descriptor_, static_cast<off_t>(size)) != 0) std::abort();
    if (::pwrite(descriptor_, data, size, 0) != static_cast<ssize_t>(size)) std::abort();
  }
  int descriptor() const { return descriptor_; }
  const std::string& path() const { return path_; }

 private:
  const int descriptor_;
  const std::string path_;
};

}  // namespace spillway::fuzz
