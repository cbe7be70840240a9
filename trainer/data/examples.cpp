#include "trainer/data/examples.h"

#include <algorithm>

#include "trainer/data/mix.h"
#include "trainer/data/span_corruption.h"

namespace spillway::trainer {
namespace {

constexpr uint64_t kValidationSeed = 0;

}  // namespace

Examples::Examples(const Corpus& corpus, const Architecture& model)
    : corpus_(corpus),
      model_(model),
      text_bytes_(text_bytes(model)),
      target_tokens_(model.target_tokens()),
      row_tokens_(model.row_tokens()) {}

uint32_t Examples::text_bytes(const Architecture& model) {
  return model.has_decoder() ? span_sizes(model.context).raw_tokens : model.context + 1;
}

std::string Examples::fault_of(const Architecture& model) {
  const uint32_t least =
      Corpus::kBytes + (model.has_decoder() ? uint32_t(kFirstByte) + span_sizes(model.context).spans : 0);
  if (model.vocabulary >= least) return "";
  return "'model.vocabulary' (" + std::to_string(model.vocabulary) + ") must be at least " +
         std::to_string(least) +
         (model.has_decoder() ? ": every byte, a pad, an end, an unknown, and a sentinel for each span"
                              : ": a token for every byte");
}

void Examples::make(std::span<const uint8_t> text, uint64_t seed, std::span<int64_t> row) const {
  if (model_.has_decoder())
    corrupt_spans(model_, text, seed, row);
  else
    std::copy(text.begin(), text.end(), row.begin());
}

void Examples::draw(uint64_t seed, uint64_t cursor, uint32_t rows, std::span<int64_t> tokens) const {
  for (uint32_t i = 0; i < rows; ++i)
    make(corpus_.training_window(mix(seed, cursor + i), text_bytes_), mix(seed + 1, cursor + i),
         tokens.subspan(size_t{i} * row_tokens_, row_tokens_));
}

void Examples::validation_row(uint32_t index, uint32_t rows, std::span<int64_t> tokens) const {
  make(corpus_.validation_window(index, rows, text_bytes_), mix(kValidationSeed, index), tokens);
}

}  // namespace spillway::trainer
