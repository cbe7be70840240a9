// Bytes from their start to their end, of memory or of a file, and again from the start. Of a file a piece at
// a time is in memory.
//
// Thread-safety: one thread. Ownership: the bytes or the descriptor are the caller's, and outlive this.
// Errors: a file that cannot be read any further ends there; `error` is its errno.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

namespace spillway::tools {

class ByteStream {
 public:
  explicit ByteStream(std::string_view whole);
  static constexpr size_t kPieceBytes = size_t{1} << 20;
  // A regular file of `size` bytes, read from its start; at least `piece` at a time.
  ByteStream(int descriptor, uint64_t size, size_t piece = kPieceBytes);

  uint64_t size() const { return size_; }
  uint64_t position() const { return begin_ + next_; }
  int error() const { return error_; }

  // The next `count` bytes, which stay good until the next call; none where there are fewer.
  std::string_view take(uint64_t count) {
    if (count > piece_.size() - next_ && !fill(count)) return {};
    const std::string_view taken = piece_.substr(next_, count);
    next_ += count;
    return taken;
  }
  // Up to the next '\n', which is passed over; `found` is whether there is one within `most` bytes.
  std::string_view take_line(uint64_t most, bool* found);
  // False where there are fewer.
  bool skip(uint64_t count);
  void restart();

 private:
  bool fill(uint64_t count);

  const int descriptor_ = -1;
  const uint64_t size_;
  const size_t piece_bytes_ = kPieceBytes;
  uint64_t begin_ = 0;  // of the piece
  size_t next_ = 0;     // in the piece
  std::string_view piece_;
  std::vector<char> buffer_;
  int error_ = 0;
};

}  // namespace spillway::tools
