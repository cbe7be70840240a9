// Files of tokens as another program could write them, whole or wrong.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace spillway::trainer {

struct WrittenTokens {
  std::string metadata = R"("format":"spillway-tokens 1","vocabulary":"300","text_bytes":"4000")";
  std::string type = "U16";
  std::vector<int32_t> tokens{};
  std::string shape{};  // "": of the tokens

  std::string bytes() const {
    const size_t width = type == "U8" ? 1 : type == "U16" ? 2 : 4;
    const std::string header = "{\"__metadata__\":{" + metadata + "},\"tokens\":{\"dtype\":\"" + type +
                               "\",\"shape\":[" + (shape.empty() ? std::to_string(tokens.size()) : shape) +
                               "],\"data_offsets\":[0," + std::to_string(width * tokens.size()) + "]}}";
    const uint64_t length = header.size();
    std::string file(reinterpret_cast<const char*>(&length), sizeof length);
    file += header;
    for (const int32_t token : tokens) file.append(reinterpret_cast<const char*>(&token), width);
    return file;
  }
};

// A token a byte of the text, `more` than it.
inline std::vector<int32_t> tokens_of(const std::string& text, int32_t more = 0) {
  std::vector<int32_t> tokens;
  tokens.reserve(text.size());
  for (const char byte : text) tokens.push_back(static_cast<uint8_t>(byte) + more);
  return tokens;
}

}  // namespace spillway::trainer
