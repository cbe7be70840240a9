#include "trainer/serve/engine/end_tokens.h"

#include "trainer/pretrained/json_keys.h"

namespace spillway::trainer::serve {

std::vector<int64_t> end_tokens(const std::string& folder, uint32_t vocabulary) {
  for (const char* name : {"generation_config.json", "config.json"}) {
    std::string ignored;
    const auto object = read_json_object(folder + "/" + name, &ignored);
    const nlohmann::json* found = object ? JsonKeys(*object).find("eos_token_id") : nullptr;
    if (!found) continue;
    std::vector<int64_t> ends;
    for (const auto& id : found->is_array() ? *found : nlohmann::json::array({*found}))
      if (id.is_number_unsigned() && id.get<uint64_t>() < vocabulary) ends.push_back(id.get<int64_t>());
    return ends;
  }
  return {};
}

}  // namespace spillway::trainer::serve
