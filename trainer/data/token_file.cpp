#include "trainer/data/token_file.h"

#include <array>
#include <charconv>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

namespace spillway::trainer {
namespace {

constexpr const char* kTokenFormat = "spillway-tokens 1";
constexpr uint64_t kMostTokens = 1 << 24;  // of a vocabulary, as of 'model.vocabulary'

// A whole number and nothing else.
std::optional<uint64_t> number_of(const std::string& text) {
  uint64_t number = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  return code == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

std::string text_at(const safetensors::File& file, const char* key) {
  const auto it = file.metadata().find(key);
  return it == file.metadata().end() ? "" : it->second;
}

// Ids of a list as JSON; nothing where it is none or an id is not in the vocabulary.
std::optional<std::vector<int64_t>> ids_of(const std::string& text, uint32_t vocabulary) {
  const auto list = nlohmann::json::parse(text, nullptr, false);
  if (!list.is_array()) return std::nullopt;
  std::vector<int64_t> ids;
  ids.reserve(list.size());
  for (const auto& id : list) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= vocabulary) return std::nullopt;
    ids.push_back(id.get<int64_t>());
  }
  return ids;
}

}  // namespace

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
    return "is a safetensors file, but not one of tokens (format \"" + std::string(kTokenFormat) + "\")";
  const auto bytes = number_of(text_at(*file_, "text_bytes"));
  if (!bytes) return "its metadata have no number 'text_bytes'";
  text_bytes_ = *bytes;
  const std::string fault = read_vocabulary();
  return fault.empty() ? read_tokens() : fault;
}

std::string TokenFile::read_vocabulary() {
  const auto size = number_of(text_at(*file_, "vocabulary"));
  if (!size || *size < 1 || *size > kMostTokens)
    return "its 'vocabulary' must be a number from 1 to " + std::to_string(kMostTokens);
  vocabulary_ = {.size = static_cast<uint32_t>(*size), .of_bytes = false, .end = {}, .sentinels = {}};
  if (file_->metadata().contains("eos")) {
    const auto end = number_of(text_at(*file_, "eos"));
    if (!end || *end >= *size) return "its 'eos' is no token of its vocabulary";
    vocabulary_.end = static_cast<int64_t>(*end);
  }
  if (file_->metadata().contains("sentinels")) {
    const auto sentinels = ids_of(text_at(*file_, "sentinels"), vocabulary_.size);
    if (!sentinels) return "its 'sentinels' are no list of tokens of its vocabulary";
    vocabulary_.sentinels = *sentinels;
  }
  return "";
}

std::string TokenFile::read_tokens() {
  const auto it = file_->tensors().find("tokens");
  if (it == file_->tensors().end() || file_->tensors().size() != 1)
    return "it must hold 'tokens' and nothing else";
  const safetensors::StoredTensor& tensor = it->second;
  if (tensor.shape.size() != 1) return "its 'tokens' must be one row";
  if (tensor.type != "U8" && tensor.type != "U16" && tensor.type != "I32")
    return "its 'tokens' are " + tensor.type + ", and must be U8, U16 or I32";
  tokens_ = TokenView(tensor.data, static_cast<uint32_t>(safetensors::bytes_of_type(tensor.type)));
  return "";
}

}  // namespace spillway::trainer
