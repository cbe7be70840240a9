// What a training reads: a text as bytes, a file of tokens (trainer/data/token_file.h), or one of pairs
// (trainer/data/pair_file.h), split into a training and a validation part, and windows or pairs of it.
//
// A text is read into memory. A file of tokens or pairs is mapped, and read once when it is opened: every
// token is checked and counted then, so that no row needs it.
//
// Thread-safety: immutable after `open`. Ownership: windows and pairs are copies. Errors: `open` says what is
// wrong with the file.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trainer/data/pair_file.h"
#include "trainer/data/token_file.h"

namespace spillway::trainer {

class Corpus {
 public:
  // `validation` is the share, at the end, that training never sees. Both parts must hold a window of
  // `window` tokens, or a pair.
  static std::optional<Corpus> open(const std::string& path, double validation, uint32_t window,
                                    std::string* error);
  // The vocabulary of what `open` would read, without reading it; of a file that is not there, bytes.
  // Nothing: the file claims to be one of tokens or pairs and is broken.
  static std::optional<Vocabulary> vocabulary_of(const std::string& path, std::string* error);

  // As many tokens as `window` holds. `number` may be any: it is taken modulo the number of windows.
  void training_window(uint64_t number, std::span<int64_t> window) const;
  // Window `index` of `windows`, spread evenly over the validation part.
  void validation_window(uint32_t index, uint32_t windows, std::span<int64_t> window) const;

  // nullptr: it is a text. A pair's source and target are padded with kPadding.
  const PairFile* pairs() const { return pairs_.get(); }
  // Each pair comes once in every pass through the training part, in an order of the seed and the pass;
  // `number` counts them from the start of the training.
  void training_pair(uint64_t seed, uint64_t number, std::span<int64_t> source,
                     std::span<int64_t> target) const;
  // Pair `index` of `count`, spread evenly over the validation part.
  void validation_pair(uint32_t index, uint32_t count, std::span<int64_t> source,
                       std::span<int64_t> target) const;

  const Vocabulary& vocabulary() const { return vocabulary_; }
  // Of the frequencies of all tokens, in nats a token: what a model reaches that knows no context. Of pairs
  // this and what follows are of the targets.
  double unigram_entropy() const { return unigram_entropy_; }
  uint64_t size() const { return tokens_.size(); }
  uint64_t text_bytes() const { return text_bytes_; }  // that all tokens were made of; 0: not known

 private:
  bool read_text(const std::string& path, std::string* error);
  bool map_tokens(const std::string& path, std::string* error);
  bool map_pairs(const std::string& path, std::string* error);
  std::string split(double validation, uint32_t window);  // what is wrong, or ""
  std::string count();
  void copy_pair(uint64_t pair, std::span<int64_t> source, std::span<int64_t> target) const;

  std::vector<uint8_t> text_;
  std::unique_ptr<TokenFile> file_;
  std::unique_ptr<PairFile> pairs_;
  TokenView tokens_;  // of one of them
  Vocabulary vocabulary_;
  uint64_t training_size_ = 0, text_bytes_ = 0;  // the first in tokens, or in pairs
  double unigram_entropy_ = 0;
};

}  // namespace spillway::trainer
