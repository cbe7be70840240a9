// The perplexity of a text by strided windows: each token is predicted once, by a window of at most `context`
// tokens that ends `stride` tokens after the one before it, so that all but the first have at least
// context - stride tokens before them.
//
// The logits of at most kMostLogitBytes are held at a time, and none of them is kept.
//
// Thread-safety: one thread. Errors: LibTorch's exceptions; texts.
#pragma once
#include "trainer/data/tokens.h"
#include "trainer/serve/engine/served_model.h"

namespace spillway::trainer::serve {

struct Perplexity {
  static constexpr uint64_t kMostLogitBytes = uint64_t{64} << 20;

  double nats = 0;  // of all tokens that were predicted
  uint64_t tokens = 0, windows = 0;

  double nats_a_token() const { return tokens ? nats / double(tokens) : 0; }
};

// REQUIRES: a decoder alone, at least two tokens, each in the vocabulary, 0 < stride <= context <= the
// model's.
Perplexity perplexity(const ServedModel& model, const TokenView& text, uint32_t context, uint32_t stride);

// `spillway-serve perplexity`: an exit code. A text, or a file of spillway.tokenize.
struct PerplexityOptions {
  std::string file;
  uint32_t context = 0, stride = 0;  // 0: the model's, half of the context
};
int print_perplexity(const ServedModel& model, const PerplexityOptions& options);

}  // namespace spillway::trainer::serve
