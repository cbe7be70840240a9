// The TOML form of the settings. In a unit of its own: toml++ is most of its compile time.
#include <stdexcept>
// Some malformed files fail an assertion of toml++'s parser: that is an error of the file, not of the
// program.
[[noreturn]] static void reject_file() {
  throw std::invalid_argument("the file is malformed");
}
#define TOML_ASSERT(condition) ((condition) ? void() : reject_file())
#include <toml++/toml.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <optional>
#include <system_error>

#include "tools/spillway/run/settings.h"
#include "tools/spillway/suggest.h"

namespace spillway::tools {
namespace {

constexpr size_t kMostBytes = 1 << 20;

std::optional<std::string> text_of(const std::string& path, std::string* error) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text(kMostBytes + 1, '\0');
  if (!file || !file.read(text.data(), static_cast<std::streamsize>(text.size())).eof()) {
    *error = file ? "it has more than 1 MiB" : "it cannot be read: " + std::generic_category().message(errno);
    return std::nullopt;
  }
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

std::optional<toml::table> parse(const std::string& text, std::string* error) {
  try {
    return toml::parse(text);
  } catch (const toml::parse_error& wrong) {
    *error = "line " + std::to_string(wrong.source().begin.line) + ": " + std::string(wrong.description());
  } catch (const std::invalid_argument& wrong) {
    *error = wrong.what();
  }
  return std::nullopt;
}

// A size may be a plain number of bytes.
bool read(const toml::node& node, std::string* value) {
  if (const auto number = node.value_exact<int64_t>(); number && *number >= 0) {
    *value = std::to_string(*number);
    return true;
  }
  const auto text = node.value_exact<std::string>();
  if (text) *value = *text;
  return text.has_value();
}

bool read(const toml::node& node, bool* value) {
  const auto flag = node.value_exact<bool>();
  if (flag) *value = *flag;
  return flag.has_value();
}

const RunOption* find_option(std::string_view name) {
  const auto found = std::ranges::find(run_options(), name, &RunOption::name);
  return found == run_options().end() ? nullptr : &*found;
}

std::string unknown(const std::string& key) {
  std::vector<std::string> names;
  for (const RunOption& option : run_options()) names.emplace_back(option.name);
  return "unknown key '" + key + "'." + did_you_mean(key, names);
}

bool read_key(const std::string& key, const toml::node& node, RunSettings* settings, std::string* error) {
  const RunOption* option = find_option(key);
  if (option == nullptr) {
    *error = unknown(key);
    return false;
  }
  if (const auto factor = node.value_exact<double>(); factor && option->is_factor) {
    settings->*std::get<std::string RunSettings::*>(option->field) = std::to_string(*factor);
    return true;
  }
  const bool is_flag = std::holds_alternative<bool RunSettings::*>(option->field);
  if (std::visit([&](auto field) { return read(node, &(settings->*field)); }, option->field)) return true;
  *error = "'" + key + "' must be " + (is_flag ? "true or false" : "a text in quotes, or a number of bytes");
  return false;
}

}  // namespace

bool read_run_file(const std::string& path, const std::function<bool(const std::string&)>& is_given,
                   RunSettings* settings, std::string* error) {
  const auto refuse = [&] {
    *error = "--config '" + path + "': " + *error;
    return false;
  };
  const std::optional<std::string> text = text_of(path, error);
  const std::optional<toml::table> table = text ? parse(*text, error) : std::nullopt;
  if (!table) return refuse();
  RunSettings read = *settings;
  for (const auto& [key, node] : *table) {
    RunSettings unused;
    const std::string name(key.str());
    if (read_key(name, node, is_given(name) ? &unused : &read, error)) continue;
    *error = "line " + std::to_string(key.source().begin.line) + ": " + *error;
    return refuse();
  }
  *settings = read;
  return true;
}

}  // namespace spillway::tools
