#include "trainer/ranks/incident.h"

#include <nlohmann/json.hpp>
#include <random>

#include "base/printed.h"

namespace spillway::trainer {

std::string to_json_text(const Incident& incident) {
  const nlohmann::ordered_json json = {
      {"number", incident.number}, {"rank", incident.rank}, {"cause", incident.cause}};
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::optional<Incident> incident_of(const std::string& json) {
  const auto read = nlohmann::ordered_json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!read.is_object() || !read.contains("number") || !read.contains("rank") || !read.contains("cause"))
    return std::nullopt;
  if (!read["number"].is_string() || !read["rank"].is_number_integer() || !read["cause"].is_string())
    return std::nullopt;
  return Incident{.number = read["number"], .rank = read["rank"], .cause = read["cause"]};
}

std::string new_incident_number() {
  std::random_device random;
  const uint64_t drawn = (uint64_t{random()} << 32) | random();
  return printed("%012llx", (unsigned long long)(drawn & 0xffffffffffff));
}

}  // namespace spillway::trainer
