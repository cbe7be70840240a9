#include "tools/spillway/rmm/line.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <vector>

namespace spillway::tools {
namespace {

constexpr std::string_view kNames[] = {"Thread", "Time", "Action", "Pointer", "Size", "Stream"};
constexpr size_t kMostFields = 32;
constexpr size_t kLongestThread = 32;
constexpr uint64_t kMicroseconds = 1'000'000;

std::string_view trimmed(std::string_view text) {
  const auto is_edge = [](char c) { return c == ' ' || c == '\r' || c == '"'; };
  while (!text.empty() && is_edge(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_edge(text.back())) text.remove_suffix(1);
  return text;
}

std::vector<std::string_view> fields_of(std::string_view line) {
  std::vector<std::string_view> fields;
  while (fields.size() < kMostFields) {
    const size_t comma = line.find(',');
    fields.push_back(trimmed(line.substr(0, comma)));
    if (comma == line.npos) break;
    line.remove_prefix(comma + 1);
  }
  return fields;
}

std::optional<uint64_t> number_of(std::string_view text, int base = 10) {
  uint64_t value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (text.empty() || read.ec != std::errc() || read.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<uint64_t> address_of(std::string_view text) {
  if (text == "(nil)" || text == "nullptr") return 0;
  if (text.starts_with("0x")) text.remove_prefix(2);
  return number_of(text, 16);
}

// The first six digits behind the point.
std::optional<uint64_t> fraction_of(std::string_view digits) {
  std::string six(digits.substr(0, 6));
  six.resize(6, '0');
  return number_of(digits) ? number_of(six) : std::nullopt;
}

std::optional<uint64_t> seconds_of(std::string_view text) {
  if (text.find(':') == text.npos) {
    const auto seconds = number_of(text);
    return seconds && *seconds < UINT64_MAX / kMicroseconds - 1 ? seconds : std::nullopt;
  }
  uint64_t seconds = 0;
  constexpr uint64_t kMost[] = {23, 59, 60};
  for (const uint64_t most : kMost) {
    const size_t colon = std::min(text.find(':'), text.size());
    const auto part = number_of(text.substr(0, colon));
    if (!part || *part > most) return std::nullopt;
    seconds = seconds * 60 + *part;
    text.remove_prefix(std::min(colon + 1, text.size()));
  }
  return text.empty() ? std::optional(seconds) : std::nullopt;
}

// "15:04:05.000123", "15:04:05:000123", "1634567890.123456".
std::optional<uint64_t> time_of(std::string_view text) {
  size_t point = text.find('.');
  if (point == text.npos && std::count(text.begin(), text.end(), ':') == 3) point = text.rfind(':');
  const auto seconds = seconds_of(text.substr(0, point));
  const auto fraction = point == text.npos ? std::optional<uint64_t>(0) : fraction_of(text.substr(point + 1));
  if (!seconds || !fraction) return std::nullopt;
  return *seconds * kMicroseconds + *fraction;
}

std::optional<RmmAction> action_of(std::string_view text) {
  if (text == "allocate") return RmmAction::kAllocate;
  if (text == "free" || text == "deallocate") return RmmAction::kFree;
  if (text == "allocate failure") return RmmAction::kFailure;
  return std::nullopt;
}

bool is_thread(std::string_view text) {
  return !text.empty() && text.size() <= kLongestThread && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  });
}

}  // namespace

std::optional<RmmColumns> RmmColumns::of_header(std::string_view line) {
  if (line.starts_with("\xEF\xBB\xBF")) line.remove_prefix(3);
  const auto fields = fields_of(line);
  RmmColumns columns;
  for (size_t i = 0; i < kCount; ++i) {
    const auto found = std::find(fields.begin(), fields.end(), kNames[i]);
    if (found == fields.end()) return std::nullopt;
    columns.place_[i] = static_cast<size_t>(found - fields.begin());
  }
  return columns;
}

std::optional<RmmLine> RmmColumns::read(std::string_view line) const {
  const auto fields = fields_of(line);
  if (fields.size() <= *std::max_element(place_.begin(), place_.end())) return std::nullopt;
  const auto field = [&](size_t column) { return fields[place_[column]]; };
  const auto time = time_of(field(1));
  const auto action = action_of(field(2));
  const auto pointer = address_of(field(3)), size = number_of(field(4)), stream = address_of(field(5));
  if (!is_thread(field(0)) || !time || !action || !pointer || !size || !stream) return std::nullopt;
  return RmmLine{field(0), *time, *action, *pointer, *size, *stream};
}

bool begins_as_rmm_log(std::string_view start) {
  const std::string_view line = start.substr(0, start.find('\n'));
  return RmmColumns::of_header(line) || RmmColumns().read(line);
}

}  // namespace spillway::tools
