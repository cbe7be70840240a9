#include "trainer/pretrained/text_marks.h"

#include "trainer/pretrained/json_keys.h"

namespace spillway::trainer {
namespace {

std::optional<std::vector<int64_t>> tokens_of(const char* key, const std::string& folder,
                                              uint32_t vocabulary) {
  for (const char* name : {"generation_config.json", "config.json"}) {
    std::string ignored;
    const auto object = read_json_object(folder + "/" + name, &ignored);
    const nlohmann::json* found = object ? JsonKeys(*object).find(key) : nullptr;
    if (!found) continue;
    std::vector<int64_t> tokens;
    const auto add = [&](const nlohmann::json& id) {
      if (id.is_number_unsigned() && id.get<uint64_t>() < vocabulary) tokens.push_back(id.get<int64_t>());
    };
    if (!found->is_array()) add(*found);
    if (found->is_array())
      for (const nlohmann::json& id : *found) add(id);
    return tokens;
  }
  return std::nullopt;
}

}  // namespace

TextMarks text_marks_of(const std::string& folder, uint32_t vocabulary) {
  return {tokens_of("bos_token_id", folder, vocabulary), tokens_of("eos_token_id", folder, vocabulary)};
}

}  // namespace spillway::trainer
