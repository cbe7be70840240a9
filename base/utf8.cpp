#include "base/utf8.h"

#include <nlohmann/json.hpp>

namespace spillway {

std::string valid_utf8(std::string_view text) {
  using Json = nlohmann::json;
  const std::string dumped = Json(std::string(text)).dump(-1, ' ', false, Json::error_handler_t::replace);
  return Json::parse(dumped).get<std::string>();
}

std::string printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : 0);
    const bool is_of_two_bytes = byte == 0xC2 && next >= 0x80 && next < 0xA0;  // U+0080 to U+009F
    const bool is_control = (byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7F;
    if (is_control || is_of_two_bytes) {
      out += "\uFFFD";
      i += is_of_two_bytes ? 1 : 0;
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace spillway
