// Pairs of texts as a tokenizer's tokens: the safetensors file that `python -m spillway.tokenize --pairs`
// writes.
//
// `sources` and `targets` hold the tokens of all pairs one after the other, each ended by the tokenizer's end
// of text; `source_offsets` and `target_offsets`, of 64-bit integers, hold where each begins, and behind the
// last the number of tokens. The file is mapped, so that it may be larger than the memory. Its form and its
// metadata are checked when it is opened; `check` reads the rest.
//
// Thread-safety: immutable. Ownership: owns the mapping; views live as long as it. Errors: texts that say
// what is wrong and what to do.
#pragma once
#include <memory>
#include <string>

#include "trainer/checkpoint/safetensors.h"
#include "trainer/data/tokens.h"

namespace spillway::trainer {

// Lists of tokens, one behind the other.
class TokenLists {
 public:
  TokenLists() = default;
  // REQUIRES: a whole number of 64-bit offsets, at least one.
  TokenLists(TokenView tokens, std::span<const std::byte> offsets) : tokens_(tokens), offsets_(offsets) {}

  TokenView tokens() const { return tokens_; }  // of all lists
  uint64_t size() const { return offsets_.size() / sizeof(int64_t) - 1; }
  uint64_t length(uint64_t list) const { return offset(list + 1) - offset(list); }
  // The list's tokens, and kPadding behind them. REQUIRES: `fault` finds nothing, and `to` has room for it.
  void copy(uint64_t list, std::span<int64_t> to) const;

  // What is wrong with the offsets, where no list may be empty or longer than `longest`; "" for nothing.
  std::string fault_of_offsets(uint64_t longest) const;
  // The first token that is not below `vocabulary`, in words; "" for none.
  std::string fault_of_tokens(uint32_t vocabulary) const;

 private:
  uint64_t offset(uint64_t list) const;

  TokenView tokens_;
  std::span<const std::byte> offsets_;
};

class PairFile {
 public:
  // Whether it is a safetensors file that says it holds pairs.
  static bool is_one(const std::string& path);
  static std::unique_ptr<PairFile> open(const std::string& path, std::string* error);

  const Vocabulary& vocabulary() const { return vocabulary_; }
  const TokenLists& sources() const { return sources_; }
  const TokenLists& targets() const { return targets_; }
  uint64_t size() const { return targets_.size(); }        // pairs
  uint64_t target_bytes() const { return target_bytes_; }  // of text; 0: some targets were cut
  std::string check() const;                               // every offset and token; what is wrong, or ""

 private:
  explicit PairFile(std::unique_ptr<safetensors::File> file) : file_(std::move(file)) {}
  std::string read();
  std::string read_metadata();
  std::string read_lists(const std::string& name, TokenLists* lists);

  std::unique_ptr<safetensors::File> file_;
  Vocabulary vocabulary_;
  TokenLists sources_, targets_;
  uint64_t target_bytes_ = 0, decoder_start_ = 0;
};

}  // namespace spillway::trainer
