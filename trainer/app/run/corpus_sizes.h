// What a run says of its corpus, and of a loss by it.
//
// Thread-safety: pure functions. Errors: none.
#pragma once
#include <optional>
#include <string>

#include "trainer/data/corpus.h"
#include "trainer/plan/architecture.h"

namespace spillway::trainer {

std::string corpus_sizes(const Corpus& corpus, const Architecture& model);

// Not of a t5 without pairs, whose loss is of the spans that were taken out.
inline bool loss_is_of_text(const Architecture& model) {
  return !model.has_decoder() || model.has_pairs();
}
// Of a loss in nats a token, by the tokens that the corpus has of a byte: of pairs their targets'. None for a
// t5 without pairs, whose loss is of some of the text alone.
std::optional<double> bits_per_byte(double loss, const Corpus& corpus, const Architecture& model);

}  // namespace spillway::trainer
