// A text as a tokenizer's tokens: the safetensors file that `python -m spillway.tokenize` writes.
//
// The file is mapped, so that it may be larger than the memory. Its form and its metadata are checked when it
// is opened; its tokens are not: who reads them all does that.
//
// Thread-safety: immutable. Ownership: owns the mapping; views live as long as it. Errors: texts that name
// the file, what is wrong and what to do.
#pragma once
#include <memory>
#include <string>

#include "trainer/checkpoint/safetensors.h"
#include "trainer/data/tokens.h"

namespace spillway::trainer {

class TokenFile {
 public:
  // Whether the file begins as a safetensors file does, which no text does. False: it cannot be read, too.
  static bool is_one(const std::string& path);
  static std::unique_ptr<TokenFile> open(const std::string& path, std::string* error);

  const Vocabulary& vocabulary() const { return vocabulary_; }
  TokenView tokens() const { return tokens_; }
  uint64_t text_bytes() const { return text_bytes_; }  // that all tokens together were made of

 private:
  explicit TokenFile(std::unique_ptr<safetensors::File> file) : file_(std::move(file)) {}
  std::string read();  // what is wrong, or ""

  std::unique_ptr<safetensors::File> file_;
  Vocabulary vocabulary_;
  TokenView tokens_;
  uint64_t text_bytes_ = 0;
};

}  // namespace spillway::trainer
