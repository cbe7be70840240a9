// A text as bytes, split into a training and a validation part, and windows drawn from it.
//
// Which windows a batch holds depends on the seed and the cursor alone: not on the micro-batch, the device or
// the number of draws before. Thread-safety: immutable after `open`. Errors: `open` says what is wrong with
// the file.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace spillway::trainer {

class Corpus {
 public:
  static constexpr uint32_t kVocabulary = 256;

  // `validation` is the share of the text, at its end, that training never sees. Both parts must hold a
  // window of `context` + 1 bytes.
  static std::optional<Corpus> open(const std::string& path, double validation, uint32_t context,
                                    std::string* error);

  // `sequences` windows of context + 1 token ids, one after the other; the cursor counts windows drawn since
  // the start.
  void draw(uint64_t seed, uint64_t cursor, uint32_t sequences, std::span<int64_t> tokens) const;
  // Window `index` of `windows`, spread evenly over the validation part.
  void validation_window(uint32_t index, uint32_t windows, std::span<int64_t> tokens) const;

  // Of the byte frequencies of the whole text, in nats: what a model reaches that knows no context.
  double unigram_entropy() const;
  uint64_t size() const { return text_.size(); }
  uint64_t training_size() const { return training_size_; }

 private:
  void window_at(uint64_t begin, std::span<int64_t> tokens) const;

  std::vector<uint8_t> text_;
  uint64_t training_size_ = 0;
};

}  // namespace spillway::trainer
