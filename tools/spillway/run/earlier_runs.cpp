#include "tools/spillway/run/earlier_runs.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>

#include "base/output_file.h"

namespace spillway::tools {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

constexpr uintmax_t kLongestList = 256 << 10;
constexpr uintmax_t kLongestRead = 4 * kLongestList;  // of a file that somebody else made

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string path_of_file() {
  if (const std::string named = variable("SPILLWAY_RUNS"); !named.empty()) return named == "off" ? "" : named;
  if (const std::string state = variable("XDG_STATE_HOME"); !state.empty())
    return state + "/spillway/runs.jsonl";
  const std::string home = variable("HOME");
  return home.empty() ? "" : home + "/.local/state/spillway/runs.jsonl";
}

// FNV-1a. Each word ends with its own zero byte, so that no two commands are one text.
std::string hash_of(const Words& command) {
  uint64_t hash = 0xcbf29ce484222325ull;
  const auto add = [&hash](std::string_view text) {
    for (const char letter : text) hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3ull;
    hash *= 0x100000001b3ull;
  };
  std::error_code unknown;
  add(fs::current_path(unknown).string());
  for (const std::string& word : command) add(word);
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

std::string text_of(const std::string& path) {
  std::error_code unknown;
  const uintmax_t bytes = fs::is_regular_file(path, unknown) ? fs::file_size(path, unknown) : 0;
  if (unknown || bytes == 0 || bytes > kLongestRead) return "";
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::optional<RunRecord> run_of(const Json& line) {
  const auto number = [&line](const char* key) -> uint64_t {
    const auto found = line.find(key);
    return found != line.end() && found->is_number_unsigned() ? found->get<uint64_t>() : 0;
  };
  RunRecord run;
  const uint64_t when = number("when");
  if (when == 0 || when > INT32_MAX * uint64_t{16}) return std::nullopt;
  run.when = static_cast<int64_t>(when);
  run.failures = number("failures");
  run.rescued = number("rescued");
  run.wanted_bytes = number("wanted_bytes");
  run.limit_bytes = number("limit_bytes");
  return run;
}

// The newer half, when there are too many.
void keep_newer(const std::string& path) {
  std::error_code unknown;
  if (fs::file_size(path, unknown) <= kLongestList || unknown) return;
  const std::string text = text_of(path);
  const size_t cut = text.find('\n', text.size() / 2);
  if (cut != text.npos) static_cast<void>(write_text(path, std::string_view(text).substr(cut + 1)));
}

}  // namespace

EarlierRuns::EarlierRuns(const Words& command) : path_(path_of_file()), program_(hash_of(command)) {}

std::optional<RunRecord> EarlierRuns::last() const {
  if (path_.empty()) return std::nullopt;
  std::optional<RunRecord> last;
  std::istringstream lines(text_of(path_));
  for (std::string line; std::getline(lines, line);) {
    const Json read = Json::parse(line, nullptr, false);
    if (!read.is_object() || read.value("program", Json()) != program_) continue;
    if (const auto run = run_of(read)) last = run;
  }
  return last;
}

void EarlierRuns::add(const RunRecord& run) const {
  if (path_.empty()) return;
  std::error_code ignored;
  fs::create_directories(fs::path(path_).parent_path(), ignored);
  const int file = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0600);
  if (file < 0) return;
  const std::string line = Json{{"program", program_},
                                {"when", run.when},
                                {"failures", run.failures},
                                {"rescued", run.rescued},
                                {"wanted_bytes", run.wanted_bytes},
                                {"limit_bytes", run.limit_bytes}}
                               .dump() +
                           "\n";
  static_cast<void>(!::write(file, line.data(), line.size()));
  ::close(file);
  keep_newer(path_);
}

}  // namespace spillway::tools
