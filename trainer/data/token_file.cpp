#include "trainer/data/token_file.h"

#include <array>
#include <cstring>
#include <fstream>

#include "trainer/data/token_metadata.h"

namespace spillway::trainer {
bool TokenFile::is_one(const std::string& path) {
  // The header's length, less than 2^32, and its first character: a text has no four NULs there.
  std::array<char, 9> begin{};
  std::ifstream file(path, std::ios::binary);
  if (!file.read(begin.data(), begin.size())) return false;
  return std::memcmp(begin.data() + 4, "\0\0\0\0{", 5) == 0;
}

std::unique_ptr<TokenFile> TokenFile::open(const std::string& path, std::string* error) {
  auto stored = safetensors::File::open(path, error);
  if (!stored) return *error = "corpus " + *error, nullptr;
  std::unique_ptr<TokenFile> file(new TokenFile(std::move(stored)));
  const std::string fault = file->read();
  if (fault.empty()) return file;
  *error = "corpus " + path + ": " + fault + ": make it again with python -m spillway.tokenize";
  return nullptr;
}

std::string TokenFile::read() {
  if (text_at(*file_, "format") != kTokenFormat)
    return "is a safetensors file, but not one of tokens (format \"" + std::string(kTokenFormat) +
           "\") or of pairs (\"" + kPairFormat + "\")";
  const auto bytes = number_at(*file_, "text_bytes");
  if (!bytes) return "its metadata have no number 'text_bytes'";
  text_bytes_ = *bytes;
  std::string fault = read_vocabulary(*file_, &vocabulary_);
  if (fault.empty()) fault = read_tokens(*file_, "tokens", &tokens_);
  if (fault.empty() && file_->tensors().size() != 1) fault = "it must hold 'tokens' and nothing else";
  return fault;
}

}  // namespace spillway::trainer
