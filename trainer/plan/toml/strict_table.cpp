#include "trainer/plan/toml/strict_table.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

namespace spillway::trainer {

std::optional<toml::table> parse_toml(std::string_view text, std::string* error, std::string_view source) {
  try {
    return toml::parse(text, source);
  } catch (const toml::parse_error& wrong) {
    *error = "line " + std::to_string(wrong.source().begin.line) + ": " + std::string(wrong.description());
  } catch (const std::invalid_argument& wrong) {
    *error = wrong.what();
  }
  return std::nullopt;
}

namespace {

// "line 12: ", or where else the node came from, or nothing for what a program made.
std::string place(const toml::source_region& source) {
  if (source.path && !source.path->empty()) return *source.path + ": ";
  return source.begin.line ? "line " + std::to_string(source.begin.line) + ": " : "";
}

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t changed = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, changed});
    }
  }
  return row.back();
}

std::string type_name(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table:
      return "a table";
    case toml::node_type::array:
      return "a list";
    case toml::node_type::string:
      return "text";
    case toml::node_type::integer:
      return "an integer";
    case toml::node_type::floating_point:
      return "a number";
    case toml::node_type::boolean:
      return "true or false";
    default:
      return "a date or time";
  }
}

}  // namespace

std::string nearest(std::string_view key, const std::vector<std::string>& known) {
  std::string best;
  size_t least = std::max<size_t>(2, key.size() / 2) + 1;
  for (const std::string& candidate : known) {
    const size_t distance = edit_distance(key, candidate);
    if (distance < least) least = distance, best = candidate;
  }
  return best;
}

std::optional<uint64_t> parse_bytes(std::string_view text) {
  static constexpr struct {
    std::string_view suffix;
    double factor;
  } kUnits[] = {{"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}, {"kB", 1e3},
                {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12},    {"B", 1},        {"", 1}};
  double value = 0;
  const auto [end, code] =
      std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  if (code != std::errc() || !std::isfinite(value) || value < 0) return std::nullopt;
  std::string_view suffix(end, text.data() + text.size() - end);
  while (!suffix.empty() && suffix.front() == ' ') suffix.remove_prefix(1);
  for (const auto& unit : kUnits) {
    if (suffix != unit.suffix) continue;
    const double bytes = value * unit.factor;
    return bytes < 0x1p60 ? std::optional<uint64_t>(static_cast<uint64_t>(bytes)) : std::nullopt;
  }
  return std::nullopt;
}

std::string StrictTable::qualified(std::string_view key) const {
  return name_.empty() ? std::string(key) : name_ + "." + std::string(key);
}

const toml::node* StrictTable::node(std::string_view key) {
  known_.emplace_back(key);
  return table_.get(key);
}

void StrictTable::fail(const toml::node& where, std::string_view what) {
  if (!error_.empty()) return;
  error_ = place(where.source()) + std::string(what);
}

void StrictTable::fail_type(std::string_view key, const toml::node& node, std::string_view expected) {
  fail(node, "'" + qualified(key) + "' must be " + std::string(expected) + ", not " + type_name(node));
}

void StrictTable::number(std::string_view key, double* value, double least, double most) {
  const toml::node* found = node(key);
  if (!found) return;
  const auto read = found->is_number() ? found->value<double>() : std::nullopt;
  if (!read) return fail_type(key, *found, "a number");
  if (!(*read >= least && *read <= most))
    return fail(*found, "'" + qualified(key) + "' must be between " + std::to_string(least) + " and " +
                            std::to_string(most));
  *value = *read;
}

std::optional<int64_t> StrictTable::integer_in(std::string_view key, int64_t least, int64_t most) {
  const toml::node* found = node(key);
  if (!found) return std::nullopt;
  const auto read = found->value_exact<int64_t>();
  if (!read) {
    fail_type(key, *found, "an integer");
  } else if (*read < least || *read > most) {
    fail(*found, "'" + qualified(key) + "' must be between " + std::to_string(least) + " and " +
                     std::to_string(most) + ", not " + std::to_string(*read));
  } else {
    return read;
  }
  return std::nullopt;
}

void StrictTable::text(std::string_view key, std::string* value) {
  const toml::node* found = node(key);
  if (!found) return;
  if (const auto read = found->value_exact<std::string>())
    *value = *read;
  else
    fail_type(key, *found, "text");
}

void StrictTable::boolean(std::string_view key, bool* value) {
  const toml::node* found = node(key);
  if (!found) return;
  if (const auto read = found->value_exact<bool>())
    *value = *read;
  else
    fail_type(key, *found, "true or false");
}

const toml::table* StrictTable::table(std::string_view key) {
  const toml::node* found = node(key);
  if (found && !found->is_table()) fail_type(key, *found, "a table");
  return found ? found->as_table() : nullptr;
}

const toml::array* StrictTable::array(std::string_view key) {
  const toml::node* found = node(key);
  if (found && !found->is_array()) fail_type(key, *found, "a list");
  return found ? found->as_array() : nullptr;
}

bool StrictTable::finish() {
  for (const auto& [key, value] : table_) {
    if (!error_.empty()) break;
    const std::string text(key.str());
    if (std::find(known_.begin(), known_.end(), text) != known_.end()) continue;
    const std::string near = nearest(text, known_);
    error_ = place(key.source()) + "unknown key '" + qualified(text) + "'" +
             (near.empty() ? "" : ": did you mean '" + qualified(near) + "'?");
  }
  return error_.empty();
}

}  // namespace spillway::trainer
