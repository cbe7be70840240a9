// A small trace file as bytes in memory, to be damaged, and an anonymous file to read the result from.
#pragma once
#include <sys/mman.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <thread>
#include <vector>

#include "tests/trace/support.h"
#include "trace/layout.h"

namespace spillway::trace {

using Image = std::vector<unsigned char>;

inline constexpr Shape kImageShape{3, 16, 4096};

// The ring of rare events, two of threads, one of them lapped, names and settings.
inline Image small_image() {
  const TemporaryFolder folder;
  {
    auto trace = open_or_fail(folder / "t", {.rings = 2, .records_per_ring = 16, .side_table_bytes = 4096});
    for (uint64_t i = 0; i < 40; ++i) trace->write(numbered(1, i));
    for (uint64_t i = 0; i < 4; ++i) {
      Record step = numbered(1, 40 + i);
      step.kind = Kind::kStepBegin;
      trace->write(step);
    }
    std::thread([&] {
      for (uint64_t i = 0; i < 10; ++i) trace->write(numbered(2, i));
    }).join();
    for (int i = 0; i < 20; ++i) trace->intern("name " + std::to_string(i));
    trace->set("limit", "1 GiB");
  }
  std::ifstream file(folder / "t", std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class AnonymousFile {
 public:
  AnonymousFile() : fd_(::memfd_create("trace", MFD_CLOEXEC)) {
    if (fd_ < 0) std::abort();
  }
  AnonymousFile(const AnonymousFile&) = delete;
  AnonymousFile& operator=(const AnonymousFile&) = delete;
  ~AnonymousFile() { ::close(fd_); }

  void hold(const Image& image) const {
    if (::ftruncate(fd_, static_cast<off_t>(image.size())) != 0) std::abort();
    if (::pwrite(fd_, image.data(), image.size(), 0) != static_cast<ssize_t>(image.size())) std::abort();
  }
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

// Makes the header whole again, so that what it says is believed.
inline void repair_check(Image* image) {
  if (image->size() < sizeof(Header)) return;
  Header header;
  std::memcpy(&header, image->data(), sizeof(header));
  header.check = header_check(header);
  std::memcpy(image->data(), &header, sizeof(header));
}

}  // namespace spillway::trace
