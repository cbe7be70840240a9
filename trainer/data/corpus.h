// A text as bytes, split into a training and a validation part, and windows of it.
//
// Thread-safety: immutable after `open`. Ownership: windows are parts of the corpus. Errors: `open` says what
// is wrong with the file.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace spillway::trainer {

class Corpus {
 public:
  static constexpr uint32_t kBytes = 256;  // different ones

  // `validation` is the share of the text, at its end, that training never sees. Both parts must hold a
  // window of `window` bytes.
  static std::optional<Corpus> open(const std::string& path, double validation, uint32_t window,
                                    std::string* error);

  // `number` may be any: it is taken modulo the number of windows.
  std::span<const uint8_t> training_window(uint64_t number, uint32_t bytes) const;
  // Window `index` of `windows`, spread evenly over the validation part.
  std::span<const uint8_t> validation_window(uint32_t index, uint32_t windows, uint32_t bytes) const;

  // Of the byte frequencies of the whole text, in nats: what a model reaches that knows no context.
  double unigram_entropy() const;
  uint64_t size() const { return text_.size(); }
  uint64_t training_size() const { return training_size_; }

 private:
  std::vector<uint8_t> text_;
  uint64_t training_size_ = 0;
};

}  // namespace spillway::trainer
