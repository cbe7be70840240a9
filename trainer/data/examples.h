// The examples of a training: rows of token ids, made of a text as the model's family learns from it.
//
// A model with a decoder alone predicts the next byte of context + 1 bytes; T5 gets spans back that were
// taken out. Which rows a batch holds depends on the seed and the cursor alone: not on the micro-batch, the
// device or the number of draws before. Thread-safety: immutable. Ownership: borrows the corpus. Errors:
// none.
#pragma once
#include <cstdint>
#include <span>

#include "spillway/trainer/plan/architecture.h"
#include "trainer/data/corpus.h"

namespace spillway::trainer {

class Examples {
 public:
  // REQUIRES: the corpus was opened for windows of `text_bytes(model)`.
  Examples(const Corpus& corpus, const Architecture& model);

  static uint32_t text_bytes(const Architecture& model);  // of one row
  // What a vocabulary must hold for these rows, as a text that names the key; "" when it does.
  static std::string fault_of(const Architecture& model);

  uint32_t row_tokens() const { return row_tokens_; }
  uint32_t target_tokens() const { return target_tokens_; }

  // `rows` rows, one after the other; the cursor counts rows drawn since the start.
  void draw(uint64_t seed, uint64_t cursor, uint32_t rows, std::span<int64_t> tokens) const;
  // Row `index` of `rows`, spread evenly over the validation part.
  void validation_row(uint32_t index, uint32_t rows, std::span<int64_t> tokens) const;

 private:
  void make(std::span<const uint8_t> text, uint64_t seed, std::span<int64_t> row) const;

  const Corpus& corpus_;
  const Architecture model_;
  const uint32_t text_bytes_, target_tokens_, row_tokens_;
};

}  // namespace spillway::trainer
