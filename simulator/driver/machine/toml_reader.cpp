#include "simulator/driver/machine/toml_reader.h"

#include <algorithm>
#include <sstream>

#include "simulator/cards/edit_distance.h"
#include "simulator/driver/machine/config.h"

namespace spillway::simulator {

bool TomlReader::bytes(const char* key, uint64_t least, uint64_t& out) {
  const toml::node* node = take(key);
  if (!node) return false;
  std::optional<uint64_t> value;
  if (const auto text = node->value_exact<std::string>()) value = parse_bytes(*text);
  if (const auto number = node->value_exact<int64_t>(); number && *number >= 0) value = *number;
  if (!value || *value < least) {
    wrong(key, *node, "a size of at least " + std::to_string(least) + " bytes such as \"8GiB\"");
    return false;
  }
  out = *value;
  return true;
}

std::optional<int64_t> TomlReader::whole(const char* key, int64_t least, int64_t most) {
  const toml::node* node = take(key);
  if (!node) return std::nullopt;
  const auto value = node->value_exact<int64_t>();
  if (value && *value >= least && *value <= most) return value;
  wrong(key, *node, "a whole number from " + std::to_string(least) + " to " + std::to_string(most));
  return std::nullopt;
}

void TomlReader::integer(const char* key, int64_t least, int64_t most, uint64_t& out) {
  if (const auto value = whole(key, least, most)) out = static_cast<uint64_t>(*value);
}

void TomlReader::integer(const char* key, int least, int most, int& out) {
  if (const auto value = whole(key, least, most)) out = static_cast<int>(*value);
}

void TomlReader::integers(const char* key, int least, int most, std::vector<int>& out) {
  const toml::node* node = take(key);
  if (!node) return;
  std::vector<int> read;
  const auto* list = node->as_array();
  bool right = list != nullptr;
  if (right) {
    for (const toml::node& element : *list) {
      const auto value = element.value_exact<int64_t>();
      right = right && value && *value >= least && *value <= most;
      read.push_back(static_cast<int>(value.value_or(0)));
    }
  }
  if (!right)
    return wrong(key, *node,
                 "a list of whole numbers from " + std::to_string(least) + " to " + std::to_string(most));
  out = read;
}

void TomlReader::number(const char* key, double least, double most, double& out) {
  const toml::node* node = take(key);
  if (!node) return;
  const auto value = node->is_number() ? node->value<double>() : std::nullopt;
  if (!value || !(*value >= least) || !(*value <= most)) {
    std::ostringstream range;
    range << "a number from " << least << " to " << most;
    return wrong(key, *node, range.str());
  }
  out = *value;
}

void TomlReader::flag(const char* key, bool& out) {
  const toml::node* node = take(key);
  if (!node) return;
  if (const auto value = node->value_exact<bool>())
    out = *value;
  else
    wrong(key, *node, "true or false");
}

std::optional<std::string> TomlReader::text(const char* key) {
  const toml::node* node = take(key);
  if (!node) return std::nullopt;
  auto value = node->value_exact<std::string>();
  if (!value) wrong(key, *node, "a text in quotes");
  return value;
}

const toml::table* TomlReader::section(const char* key) {
  const toml::node* node = take(key);
  if (node && !node->is_table()) wrong(key, *node, "a section");
  return node ? node->as_table() : nullptr;
}

void TomlReader::reject(const char* key, const std::string& expected) {
  if (const toml::node* node = table_.get(key)) wrong(key, *node, expected);
}

std::string TomlReader::finish() {
  for (const auto& [key, node] : table_) {
    if (!error_.empty()) break;
    if (std::find(known_.begin(), known_.end(), key.str()) != known_.end()) continue;
    const auto nearest = std::min_element(known_.begin(), known_.end(), [&](const auto& a, const auto& b) {
      return cards::edit_distance(a, key.str()) < cards::edit_distance(b, key.str());
    });
    error_ = place(node) + "unknown key '" + section_ + std::string(key.str()) + "': did you mean '" +
             section_ + *nearest + "'?";
  }
  return error_;
}

const toml::node* TomlReader::take(const char* key) {
  known_.emplace_back(key);
  return error_.empty() ? table_.get(key) : nullptr;
}

std::string TomlReader::place(const toml::node& node) const {
  return file_ + ":" + std::to_string(node.source().begin.line) + ": ";
}

void TomlReader::wrong(const char* key, const toml::node& node, const std::string& expected) {
  if (error_.empty()) error_ = place(node) + "'" + section_ + key + "' must be " + expected;
}

}  // namespace spillway::simulator
