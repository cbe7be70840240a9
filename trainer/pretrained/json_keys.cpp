#include "trainer/pretrained/json_keys.h"

#include <cstdio>
#include <fstream>
#include <sstream>

namespace spillway::trainer {
namespace {

using nlohmann::json;

// A list or an object is named by its type: its text could be long, and is made by recursion.
std::string shown(const json& value) {
  return value.is_primitive() ? value.dump() : "an " + std::string(value.type_name());
}

std::string short_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

}  // namespace

const json* JsonKeys::find(const std::string& key) const {
  const auto found = object_.find(key);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

void JsonKeys::fail(const std::string& text) {
  if (error_.empty()) error_ = text;
}

void JsonKeys::wrong(const std::string& key, const std::string& wanted) {
  fail("'" + key + "' must be " + wanted + ", not " + shown(*find(key)));
}

void JsonKeys::require(const std::string& key, uint32_t* value, uint32_t least, uint32_t most) {
  if (find(key))
    integer(key, value, least, most);
  else
    fail("'" + key + "' is missing");
}

void JsonKeys::integer(const std::string& key, uint32_t* value, uint32_t least, uint32_t most) {
  const json* found = find(key);
  if (!found) return;
  const bool whole = found->is_number_unsigned();
  if (whole && found->get<uint64_t>() >= least && found->get<uint64_t>() <= most)
    *value = found->get<uint32_t>();
  else
    wrong(key, "a whole number between " + std::to_string(least) + " and " + std::to_string(most));
}

void JsonKeys::number(const std::string& key, double* value, double least, double most) {
  const json* found = find(key);
  if (!found) return;
  if (found->is_number() && found->get<double>() >= least && found->get<double>() <= most)
    *value = found->get<double>();
  else
    wrong(key, "a number between " + short_text(least) + " and " + short_text(most));
}

void JsonKeys::flag(const std::string& key, bool* value) {
  const json* found = find(key);
  if (!found) return;
  if (found->is_boolean())
    *value = found->get<bool>();
  else
    wrong(key, "true or false");
}

void JsonKeys::text(const std::string& key, std::string* value) {
  const json* found = find(key);
  if (!found) return;
  if (found->is_string())
    *value = found->get<std::string>();
  else
    wrong(key, "a text");
}

void JsonKeys::must_be(const std::string& key, bool wanted) {
  bool value = wanted;
  flag(key, &value);
  const std::string needed = wanted ? "true" : "false";
  if (value != wanted)
    fail("'" + key + "' is " + (value ? "true" : "false") +
         ", which is not supported: choose a model that was " + "trained with " + needed);
}

std::optional<json> read_json_object(const std::string& path, std::string* error) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) return *error = path + ": cannot be read", std::nullopt;
  std::optional<json> object(json::parse(text.str(), nullptr, false));
  if (!object->is_object()) return *error = path + ": is no JSON object", std::nullopt;
  return object;
}

}  // namespace spillway::trainer
