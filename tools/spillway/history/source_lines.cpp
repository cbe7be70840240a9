#include "tools/spillway/history/source_lines.h"

#include <algorithm>
#include <fstream>

#include "tools/spillway/history/names.h"
#include "tools/spillway/rehearse/judge/places.h"

namespace spillway::tools {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostFiles = 64, kLongestLine = 110;
constexpr uintmax_t kLongestFile = uintmax_t{4} << 20;

// Without its indentation, and with nothing that a terminal would take for a command.
std::string shown(std::string line) {
  const size_t start = line.find_first_not_of(" \t");
  line.erase(0, std::min(start, line.size()));
  while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
  for (char& letter : line)
    if (static_cast<unsigned char>(letter) < ' ' || letter == 0x7f) letter = ' ';
  if (line.size() <= kLongestLine) return line;
  size_t end = kLongestLine;  // not in the middle of a letter
  while (end > 0 && (static_cast<unsigned char>(line[end]) & 0xC0) == 0x80) --end;
  return line.substr(0, end) + " ...";
}

}  // namespace

SourceLines::SourceLines(const std::string& report) {
  std::error_code unknown;
  const auto time = fs::last_write_time(report, unknown);
  if (!unknown) newest_ = time;
}

void SourceLines::know(const std::vector<StackFrame>& frames) {
  for (const StackFrame& frame : frames) {
    if (!is_python(frame)) continue;
    const Frame named{std::string(frame.function), std::string(frame.file),
                      static_cast<uint64_t>(frame.line)};
    const auto [known, is_new] = places_.try_emplace(frame_text(named), Origin{named.file, named.line});
    if (!is_new && known->second.file != named.file) known->second.file.clear();
  }
}

std::string SourceLines::of(const std::string& place) {
  const auto known = places_.find(place);
  if (known == places_.end() || known->second.file.empty()) return "";
  const Lines& lines = lines_of(known->second.file);
  const uint64_t line = known->second.line;
  return line <= lines.size() ? shown(lines[line - 1]) : "";
}

const SourceLines::Lines& SourceLines::lines_of(const std::string& file) {
  static const Lines none;
  if (!files_.contains(file) && files_.size() >= kMostFiles) return none;
  const auto [read, is_new] = files_.try_emplace(file);
  std::error_code unknown;
  if (!is_new || !newest_ || !file.ends_with(".py") || !fs::is_regular_file(file, unknown) ||
      fs::file_size(file, unknown) > kLongestFile || fs::last_write_time(file, unknown) > *newest_ || unknown)
    return read->second;
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) read->second.push_back(line);
  return read->second;
}

}  // namespace spillway::tools
