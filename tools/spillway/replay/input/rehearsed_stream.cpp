#include "tools/spillway/replay/input/rehearsed_stream.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <map>
#include <string_view>
#include <vector>

#include "tools/spillway/replay/input/numbers.h"

namespace spillway::tools {
namespace {

constexpr std::string_view kFirstLine = "spillway-stream 1", kAnyVersion = "spillway-stream ";
constexpr uint64_t kMostDevices = 1024;

// The numbers after a line's kind; nothing where there are others than `count`.
std::optional<std::array<uint64_t, 3>> numbers(std::string_view text, size_t count) {
  std::array<uint64_t, 3> values{};
  const char* at = text.data();
  const char* const end = at + text.size();
  for (size_t i = 0; i < count; ++i) {
    if (at == end || *at != ' ') return std::nullopt;
    const auto [rest, wrong] = std::from_chars(at + 1, end, values[i]);
    if (wrong != std::errc()) return std::nullopt;
    at = rest;
  }
  return at == end ? std::optional(values) : std::nullopt;
}

// One device's part.
class DeviceStream {
 public:
  void step_ended() { step_ended_ = true; }

  bool take(char kind, std::string_view rest) {
    switch (kind) {
      case 'a':
        return allocate(numbers(rest, 3));
      case 'f':
        return free(numbers(rest, 1));
      case '!':
        return fail(numbers(rest, 2));
      case '+':
      case '-':
        return numbers(rest, 1).has_value();  // the allocator's, not the program's
      default:
        return false;
    }
  }

  uint64_t asked_bytes() const { return asked_; }
  bool failed() const { return failed_; }

  // Up to the last failed request, which is the last of them.
  Requests finish() {
    if (failed_) {
      out_.requests.resize(failed_at_);
      while (!out_.steps.empty() && out_.steps.back() > failed_at_) out_.steps.pop_back();
      out_.requests.push_back({RequestKind::kAllocate, failed_block_, failed_bytes_, 0});
      out_.blocks = failed_block_ + 1;
    }
    out_.streams = std::max(out_.streams, 1u);
    return std::move(out_);
  }

 private:
  using Values = std::optional<std::array<uint64_t, 3>>;

  void begin() {
    if (step_ended_ || out_.requests.empty()) out_.steps.push_back(out_.requests.size());
    step_ended_ = false;
  }

  bool allocate(const Values& line) {
    if (!line || (*line)[0] == 0) return false;
    begin();
    add((*line)[0], streams_.of((*line)[1]));
    is_free_.push_back(false);
    return true;
  }

  void add(uint64_t bytes, uint32_t stream) {
    out_.requests.push_back({RequestKind::kAllocate, out_.blocks++, bytes, stream});
    out_.streams = std::max(out_.streams, stream + 1);
    asked_ += bytes;
  }

  bool free(const Values& line) {
    if (!line || (*line)[0] == 0 || (*line)[0] > is_free_.size() || is_free_[(*line)[0] - 1]) return false;
    begin();
    is_free_[(*line)[0] - 1] = true;
    out_.requests.push_back({RequestKind::kFree, static_cast<uint32_t>((*line)[0] - 1)});
    return true;
  }

  // The stream of a failed request is not told: the first is taken.
  bool fail(const Values& line) {
    if (!line || (*line)[0] == 0) return false;
    begin();
    failed_ = true;
    failed_at_ = out_.requests.size();
    failed_block_ = out_.blocks;
    failed_bytes_ = (*line)[0];
    return true;
  }

  Numbers<uint64_t> streams_;
  Requests out_;
  std::vector<bool> is_free_;
  uint64_t asked_ = 0, failed_bytes_ = 0;
  size_t failed_at_ = 0;
  uint32_t failed_block_ = 0;
  bool failed_ = false, step_ended_ = false;
};

class StreamReader {
 public:
  bool take(std::string_view text) {
    if (text.starts_with("step ")) {
      for (auto& [number, device] : devices_) device.step_ended();
      return numbers(text.substr(4), 1).has_value();
    }
    uint64_t number = 0;
    const char* const end = text.end();
    const auto [rest, wrong] = std::from_chars(text.begin(), end, number);
    if (wrong != std::errc() || number >= kMostDevices || end - rest < 2 || *rest != ' ') return false;
    if (rest[1] == '!') last_failed_ = static_cast<int>(number);
    return devices_[static_cast<int>(number)].take(rest[1], {rest + 2, end});
  }

  std::optional<RehearsedRequests> finish() {
    if (devices_.empty()) return std::nullopt;
    const auto most = std::ranges::max_element(
        devices_, {}, [](const auto& device) { return device.second.asked_bytes(); });
    const int shown = last_failed_.value_or(most->first);
    return RehearsedRequests{shown, devices_[shown].finish()};
  }

 private:
  std::map<int, DeviceStream> devices_;
  std::optional<int> last_failed_;
};

}  // namespace

bool begins_as_rehearsed_stream(const std::string& start) {
  return start.starts_with(kAnyVersion);
}

std::optional<RehearsedRequests> read_rehearsed_stream(const std::string& path, std::string* error) {
  std::ifstream file(path);
  std::string line;
  if (!file || !std::getline(file, line) || line != kFirstLine) {
    *error = path + ": " + (!file ? std::strerror(errno) : "'" + line.substr(0, 80) + "' is not version 1");
    return std::nullopt;
  }
  StreamReader reader;
  for (size_t number = 2; std::getline(file, line); ++number) {
    if (file.eof() || reader.take(line)) continue;  // a program that was stopped leaves half a line
    *error = path + ":" + std::to_string(number) + ": '" + line.substr(0, 80) +
             "' is no line of a rehearsal's stream";
    return std::nullopt;
  }
  auto requests = reader.finish();
  if (!requests) *error = path + ": holds no request";
  return requests;
}

}  // namespace spillway::tools
