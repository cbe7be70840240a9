// Tokens as a file stores them, and what must be known of them before they are read.
//
// Thread-safety: values; a view is immutable. Ownership: a view borrows its bytes, which need no alignment.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace spillway::trainer {

// What stands in a row behind a source or a target that is shorter than its place: no token.
inline constexpr int64_t kPadding = -1;

struct Vocabulary {
  uint32_t size = 256;             // all tokens are less
  bool of_bytes = true;            // a token is a byte of a text, without a tokenizer
  std::optional<int64_t> end;      // of a text or a sequence, where the tokenizer has it
  std::vector<int64_t> sentinels;  // that stand for T5's spans, the first span's first
  // Tokens of the longest of each, in a file of pairs; 0: the tokens are those of one text.
  uint32_t longest_source = 0, longest_target = 0;

  bool of_pairs() const { return longest_target > 0; }
};

class TokenView {
 public:
  TokenView() = default;
  // `width` bytes a token: 1 and 2 without a sign, 4 with one.
  TokenView(std::span<const std::byte> data, uint32_t width) : data_(data), width_(width) {}

  uint64_t size() const { return data_.size() / width_; }
  // As many as `to` holds. REQUIRES: first + to.size() <= size().
  void copy(uint64_t first, std::span<int64_t> to) const;

 private:
  std::span<const std::byte> data_;
  uint32_t width_ = 1;
};

}  // namespace spillway::trainer
