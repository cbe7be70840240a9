// Text and tokens of a model whose tokens are bytes. Other models have a tokenizer, which this program does
// not have: their prompts are lists of token ids.
//
// Thread-safety: pure functions. Errors: none.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/plan/architecture.h"

namespace spillway::trainer::serve {

enum class TextForm : uint8_t {
  kTokenizer,  // a tokenizer's tokens
  kBytes,      // a token is a byte
  kByT5        // three more than the byte; 1 ends a text
};
// By the size of the vocabulary: 256, and ByT5's 384.
TextForm text_form_of(const Architecture& model);

// REQUIRES: not kTokenizer.
std::vector<int64_t> tokens_of(TextForm form, std::string_view text);
// The byte of a token; "" where it has none.
std::string bytes_of(TextForm form, int64_t token);

}  // namespace spillway::trainer::serve
