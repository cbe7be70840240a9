#include "tools/spillway/units.h"

#include <charconv>
#include <cstdio>

namespace spillway::tools {
namespace {

constexpr double kMostBytes = 1125899906842624.0;  // 1 PiB

struct Unit {
  std::string_view name;
  double bytes;
};
constexpr Unit kUnits[] = {{"", 1},
                           {"B", 1},
                           {"kB", 1e3},
                           {"KB", 1e3},
                           {"MB", 1e6},
                           {"GB", 1e9},
                           {"TB", 1e12},
                           {"KiB", 1024.0},
                           {"MiB", 1048576.0},
                           {"GiB", 1073741824.0},
                           {"TiB", 1099511627776.0}};

std::string_view without_spaces_in_front(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  return text;
}

template <typename... Values>
std::string format(const char* pattern, Values... values) {
  char text[64];
  std::snprintf(text, sizeof(text), pattern, values...);
  return text;
}

}  // namespace

std::optional<uint64_t> parse_size(std::string_view text) {
  text = without_spaces_in_front(text);
  double number = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (error != std::errc()) return std::nullopt;
  const std::string_view rest = without_spaces_in_front(text.substr(static_cast<size_t>(end - text.data())));
  for (const Unit& unit : kUnits) {
    if (unit.name != rest) continue;
    const double bytes = number * unit.bytes;
    if (!(bytes >= 1 && bytes <= kMostBytes)) return std::nullopt;
    return static_cast<uint64_t>(bytes);
  }
  return std::nullopt;
}

std::string exact_size_text(uint64_t bytes) {
  return bytes < 1024 ? size_text(bytes) : size_text(bytes) + " (" + std::to_string(bytes) + ")";
}

std::string duration_text(uint64_t microseconds) {
  if (microseconds < 1000) return std::to_string(microseconds) + " µs";
  const auto value = static_cast<double>(microseconds);
  if (microseconds < 999500) return format("%.3g ms", value / 1e3);
  if (microseconds < 120'000'000) return format("%.3g s", value / 1e6);
  const uint64_t seconds = microseconds / 1'000'000, minutes = seconds / 60;
  if (minutes < 120) return std::to_string(minutes) + " min " + std::to_string(seconds % 60) + " s";
  return std::to_string(minutes / 60) + " h " + std::to_string(minutes % 60) + " min";
}

std::string address_text(uint64_t address) {
  return address == 0 ? "0" : format("0x%llx", static_cast<unsigned long long>(address));
}

std::string count_text(uint64_t count, const char* one, const char* many) {
  return std::to_string(count) + " " + (count == 1 ? one : many);
}

}  // namespace spillway::tools
