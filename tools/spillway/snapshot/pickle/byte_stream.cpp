#include "tools/spillway/snapshot/pickle/byte_stream.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace spillway::tools {
ByteStream::ByteStream(std::string_view whole) : size_(whole.size()), piece_(whole) {}

ByteStream::ByteStream(int descriptor, uint64_t size, size_t piece)
    : descriptor_(descriptor), size_(size), piece_bytes_(piece) {}

// `count` bytes from `next_` on, or as many as there are.
bool ByteStream::fill(uint64_t count) {
  if (descriptor_ < 0 || count > size_ - std::min(size_, position())) return false;
  const size_t left = piece_.size() - next_;
  const size_t wanted = std::max(count, std::min<uint64_t>(piece_bytes_, size_ - position()));
  if (left > 0) std::memmove(buffer_.data(), piece_.data() + next_, left);
  if (buffer_.size() < wanted) buffer_.resize(wanted);
  begin_ += next_;
  next_ = 0;
  size_t held = left;
  while (held < wanted) {
    const ssize_t got =
        ::pread(descriptor_, buffer_.data() + held, wanted - held, static_cast<off_t>(begin_ + held));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) error_ = errno;
    if (got <= 0) break;
    held += static_cast<size_t>(got);
  }
  piece_ = {buffer_.data(), held};
  return held >= count;
}

std::string_view ByteStream::take_line(uint64_t most, bool* found) {
  for (uint64_t wanted = 64;; wanted *= 2) {
    const uint64_t known = std::min({wanted, most, size_ - std::min(size_, position())});
    if (known > piece_.size() - next_) fill(known);
    const std::string_view line = piece_.substr(next_, known);
    const size_t end = line.find('\n');
    *found = end != line.npos;
    if (*found) {
      next_ += end + 1;
      return line.substr(0, end);
    }
    if (known < wanted) return {};
  }
}

bool ByteStream::skip(uint64_t count) {
  if (count > size_ - std::min(size_, position())) return false;
  if (count <= piece_.size() - next_) {
    next_ += count;
    return true;
  }
  begin_ = position() + count;
  next_ = 0;
  piece_ = {};
  return true;
}

void ByteStream::restart() {
  if (descriptor_ < 0) {
    next_ = 0;
    return;
  }
  begin_ = next_ = 0;
  piece_ = {};
}

}  // namespace spillway::tools
