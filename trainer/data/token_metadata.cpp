#include "trainer/data/token_metadata.h"

#include <charconv>
#include <nlohmann/json.hpp>
#include <vector>

namespace spillway::trainer {
namespace {

constexpr uint64_t kMostTokens = 1 << 24;  // of a vocabulary, as of 'model.vocabulary'

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

std::string text_at(const safetensors::File& file, const char* key) {
  const auto it = file.metadata().find(key);
  return it == file.metadata().end() ? "" : it->second;
}

std::optional<uint64_t> number_at(const safetensors::File& file, const char* key) {
  const std::string text = text_at(file, key);
  uint64_t number = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  return code == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

std::string read_vocabulary(const safetensors::File& file, Vocabulary* vocabulary) {
  const auto size = number_at(file, "vocabulary");
  if (!size || *size < 1 || *size > kMostTokens)
    return "its 'vocabulary' must be a number from 1 to " + std::to_string(kMostTokens);
  *vocabulary = Vocabulary{};
  vocabulary->size = static_cast<uint32_t>(*size);
  vocabulary->of_bytes = false;
  if (file.metadata().contains("eos")) {
    const auto end = number_at(file, "eos");
    if (!end || *end >= *size) return "its 'eos' is no token of its vocabulary";
    vocabulary->end = static_cast<int64_t>(*end);
  }
  if (file.metadata().contains("sentinels")) {
    const auto sentinels = ids_of(text_at(file, "sentinels"), vocabulary->size);
    if (!sentinels) return "its 'sentinels' are no list of tokens of its vocabulary";
    vocabulary->sentinels = *sentinels;
  }
  return "";
}

std::string read_tokens(const safetensors::File& file, const std::string& name, TokenView* tokens) {
  const auto it = file.tensors().find(name);
  if (it == file.tensors().end()) return "it has no '" + name + "'";
  const safetensors::StoredTensor& tensor = it->second;
  if (tensor.shape.size() != 1) return "its '" + name + "' must be one row";
  if (tensor.type != "U8" && tensor.type != "U16" && tensor.type != "I32")
    return "its '" + name + "' are " + tensor.type + ", and must be U8, U16 or I32";
  *tokens = TokenView(tensor.data, static_cast<uint32_t>(safetensors::bytes_of_type(tensor.type)));
  return "";
}

}  // namespace spillway::trainer
