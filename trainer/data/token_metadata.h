// The metadata that files of tokens and of pairs share.
//
// Thread-safety: pure functions. Errors: faults are texts that name the key; "" is none.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "trainer/checkpoint/safetensors.h"
#include "trainer/data/tokens.h"

namespace spillway::trainer {

// What 'format' says of each.
inline constexpr const char* kTokenFormat = "spillway-tokens 1";
inline constexpr const char* kPairFormat = "spillway-pairs 1";

// "" where the key is missing.
std::string text_at(const safetensors::File& file, const char* key);
// Nothing where the key is missing, or is not a whole number and nothing else.
std::optional<uint64_t> number_at(const safetensors::File& file, const char* key);

// Sets `vocabulary` to that of a tokenizer: size, end and sentinels. The fault.
std::string read_vocabulary(const safetensors::File& file, Vocabulary* vocabulary);

// The tokens of a tensor, if it is there, a row, and of a type that tokens have. The fault.
std::string read_tokens(const safetensors::File& file, const std::string& name, TokenView* tokens);

}  // namespace spillway::trainer
