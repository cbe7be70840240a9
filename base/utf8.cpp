#include "base/utf8.h"

#include <nlohmann/json.hpp>

namespace spillway {

std::string valid_utf8(std::string_view text) {
  using Json = nlohmann::json;
  const std::string dumped = Json(std::string(text)).dump(-1, ' ', false, Json::error_handler_t::replace);
  return Json::parse(dumped).get<std::string>();
}

}  // namespace spillway
