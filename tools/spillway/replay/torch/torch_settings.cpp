#include "tools/spillway/replay/torch/torch_settings.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <optional>

namespace spillway::tools {
namespace {

constexpr uint64_t kUnit = 512;

std::optional<uint64_t> number_of(std::string_view text) {
  uint64_t value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || read.ec != std::errc() || read.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string_view without_spaces(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

// The place of a size in `power_divisions`: 1 MiB and less is the first.
size_t power_index(uint64_t bytes) {
  const int power = static_cast<int>(std::bit_width(bytes)) - 1;
  return static_cast<size_t>(std::clamp(power - 20, 0, 15));
}

// Splits at commas, but not inside brackets.
std::vector<std::string_view> parts_of(std::string_view text) {
  std::vector<std::string_view> parts;
  size_t start = 0;
  int depth = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && text[i] == '[') ++depth;
    if (i < text.size() && text[i] == ']') --depth;
    if (i < text.size() && (text[i] != ',' || depth > 0)) continue;
    if (i > start) parts.push_back(without_spaces(text.substr(start, i - start)));
    start = i + 1;
  }
  return parts;
}

// "4", or "[256:1,512:2,>:4]" by megabytes: the first also holds for what is smaller, one of them for its own
// power of two, and '>' for all that is larger than the last.
bool read_divisions(std::string_view value, TorchSettings* out) {
  auto& divisions = out->power_divisions;
  if (const auto all = number_of(value)) {
    divisions.fill(static_cast<uint32_t>(std::min<uint64_t>(*all, 1024)));
    return true;
  }
  if (!value.starts_with('[') || !value.ends_with(']')) return false;
  std::optional<size_t> last;
  for (const std::string_view entry : parts_of(value.substr(1, value.size() - 2))) {
    const size_t colon = entry.find(':');
    if (colon == entry.npos) return false;
    const auto parts = number_of(entry.substr(colon + 1));
    const auto megabytes = number_of(entry.substr(0, colon));
    if (!parts || (!megabytes && entry[0] != '>')) return false;
    const auto count = static_cast<uint32_t>(std::min<uint64_t>(*parts, 1024));
    if (!megabytes) {
      std::fill(divisions.begin() + static_cast<ptrdiff_t>(last ? *last + 1 : 0), divisions.end(), count);
      continue;
    }
    const size_t at = power_index(std::clamp<uint64_t>(*megabytes, 1, uint64_t{1} << 40) << 20);
    if (!last) std::fill_n(divisions.begin(), at, count);
    divisions[at] = count;
    last = at;
  }
  return true;
}

// False: a key or a value that is not known here.
bool take(std::string_view key, std::string_view value, TorchSettings* out) {
  const auto number = number_of(value);
  const auto in_mebibytes = [&](uint64_t* bytes) {
    if (number) *bytes = std::min<uint64_t>(*number, uint64_t{1} << 40) << 20;
    return number.has_value();
  };
  if (key == "expandable_segments") {
    out->expandable_segments = value == "True" || value == "true" || value == "1";
    return true;
  }
  if (key == "max_split_size_mb") return in_mebibytes(&out->max_split_bytes);
  if (key == "max_non_split_rounding_mb") return in_mebibytes(&out->most_non_split_rounding);
  if (key == "large_segment_size_mb")
    return number && *number >= 20 && *number % 2 == 0 && in_mebibytes(&out->large_segment_bytes);
  if (key == "roundup_power2_divisions") return read_divisions(value, out);
  return false;
}

}  // namespace

uint64_t TorchSettings::rounded(uint64_t bytes) const {
  if (bytes < kUnit) return kUnit;
  const uint64_t divisions = power_divisions[power_index(bytes)];
  if (divisions > 1 && bytes > kUnit * divisions) {
    if (std::has_single_bit(bytes)) return bytes;
    const uint64_t part = std::bit_floor(bytes) / std::bit_floor(divisions);
    return (bytes + part - 1) / part * part;
  }
  return bytes > UINT64_MAX - kUnit ? bytes / kUnit * kUnit : (bytes + kUnit - 1) / kUnit * kUnit;
}

TorchSettings parse_torch_settings(std::string_view text) {
  TorchSettings settings;
  for (const std::string_view entry : parts_of(text)) {
    const size_t colon = entry.find(':');
    const std::string_view key = without_spaces(entry.substr(0, colon));
    const std::string_view value =
        colon == entry.npos ? std::string_view() : without_spaces(entry.substr(colon + 1));
    if (!take(key, value, &settings)) settings.ignored.emplace_back(key);
  }
  return settings;
}

}  // namespace spillway::tools
