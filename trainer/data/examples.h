// The examples of a training: rows of token ids, made of a corpus as the model's family learns from it.
//
// A model with a decoder alone predicts the next token of context + 1 tokens; T5 gets spans back that were
// taken out, marked as its tokenizer marks them, or as ByT5's where the corpus is bytes, or learns the
// targets of pairs: a row is then a source and a target, each padded with kPadding to its full length, so
// that every micro-batch has the same sizes and the estimate is of all of them. Which rows a batch holds
// depends on the seed and the cursor alone: not on the micro-batch, the device, the thread or the number of
// draws before. Thread-safety: immutable. Ownership: borrows the corpus. Errors: none.
#pragma once
#include <cstdint>
#include <span>

#include "trainer/data/corpus.h"
#include "trainer/data/span_corruption.h"
#include "trainer/plan/architecture.h"

namespace spillway::trainer {

class Examples {
 public:
  // REQUIRES: the corpus was opened for windows of `window_tokens(model)`, and `fault_of` finds nothing.
  Examples(const Corpus& corpus, const Architecture& model);

  static uint32_t window_tokens(const Architecture& model);  // of the corpus, for one row
  // What model and vocabulary lack for these rows, as a text that names the key; "" for nothing.
  static std::string fault_of(const Architecture& model, const Vocabulary& vocabulary);

  uint32_t row_tokens() const { return row_tokens_; }
  uint32_t target_tokens() const { return target_tokens_; }

  // `rows` rows, one after the other; the cursor counts rows drawn since the start.
  void draw(uint64_t seed, uint64_t cursor, uint32_t rows, std::span<int64_t> tokens) const;
  // Row `index` of `rows`, spread evenly over the validation part.
  void validation_row(uint32_t index, uint32_t rows, std::span<int64_t> tokens) const;

 private:
  // `read` fills a window of the corpus.
  template <typename Read>
  void make(const Read& read, uint64_t seed, std::span<int64_t> row) const;
  void draw_row(uint64_t seed, uint64_t number, std::span<int64_t> row) const;

  const Corpus& corpus_;
  const Architecture model_;
  const uint32_t target_tokens_, row_tokens_;
  const SpanMarks marks_;  // of span corruption
};

}  // namespace spillway::trainer
