#include "tools/spillway/replay/input/requests.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <map>
#include <unordered_map>

#include "tools/spillway/history/moment.h"
#include "tools/spillway/replay/input/numbers.h"

namespace spillway::tools {
namespace {

constexpr uint64_t kUnit = 512;

class Extractor {
 public:
  explicit Extractor(const DeviceHistory& device) : device_(device) {
    pools_.of({0, 0});
    find_streams();
  }

  Requests run(size_t until) {
    until = std::min(until, device_.events.size());
    place_older();
    auto step = told_steps(device_).begin();
    auto note = device_.optimizer_steps.begin();
    for (size_t i = 0; i < until; ++i) {
      for (; note != device_.optimizer_steps.end() && *note <= device_.events[i].microseconds; ++note)
        out_.steps.push_back(out_.requests.size());
      for (; step != told_steps(device_).end() && *step <= i; ++step)
        out_.steps.push_back(out_.requests.size());
      now_ = device_.events[i].microseconds;
      take(device_.events[i]);
    }
    if (until < device_.events.size() && device_.events[until].action == Action::kOutOfMemory) {
      const HistoryEvent& failed = device_.events[until];
      now_ = failed.microseconds;
      allocate(0, failed.size, failed.stream, failed.pool, failed.stack);
    }
    out_.streams = streams_.count();
    out_.pools = pools_.count();
    out_.stream_names = streams_.keys();
    out_.pool_names = pools_.keys();
    return std::move(out_);
  }

 private:
  // A block that is older than the history has its stream from its segment, or from its free.
  void find_streams() {
    for (const HistoryEvent& event : device_.events)
      if (event.action == Action::kFreeRequested || event.action == Action::kFreeCompleted)
        freed_by_.try_emplace(event.address, event.stream, event.pool);
  }

  void place_older() {
    const Moment start = moment_at(device_, 0);
    if (!device_.events.empty()) now_ = device_.events.front().microseconds;
    for (const HeldBlock& block : start.blocks) {
      const auto [stream, pool] = owner_of(block.address);
      allocate(block.address, block.requested, stream, pool, block.stack);
      out_.older_bytes += block.requested;
      if (block.pending) change(block.address, RequestKind::kFreeLater);
    }
    out_.older = out_.requests.size();
  }

  std::pair<uint64_t, PoolId> owner_of(uint64_t address) const {
    const auto freed = freed_by_.find(address);
    if (freed != freed_by_.end()) return freed->second;
    const auto after = std::upper_bound(
        device_.segments.begin(), device_.segments.end(), address,
        [](uint64_t place, const HistorySegment& segment) { return place < segment.address; });
    if (after == device_.segments.begin()) return {};
    return {std::prev(after)->stream, std::prev(after)->pool};
  }

  void take(const HistoryEvent& event) {
    switch (event.action) {
      case Action::kAllocate:
        return allocate(event.address, event.size, event.stream, event.pool, event.stack);
      case Action::kFreeRequested:
        return change(event.address, RequestKind::kFreeLater);
      case Action::kFreeCompleted:
        return change(event.address, RequestKind::kFree);
      default:
        return;
    }
  }

  void allocate(uint64_t address, uint64_t bytes, uint64_t stream, const PoolId& pool, StackId stack) {
    const auto [block, is_new] = blocks_.try_emplace(address, out_.blocks);
    if (!is_new && address != 0) {
      change(address, RequestKind::kFree);
      ++out_.passed_over;
      blocks_[address] = out_.blocks;
    }
    out_.stacks.push_back(stack);
    add({RequestKind::kAllocate, out_.blocks++, std::max<uint64_t>(bytes, 1), streams_.of(stream),
         pools_.of(pool)});
  }

  // A free that happens at once is one request: the first half of it goes.
  void change(uint64_t address, RequestKind kind) {
    const auto block = blocks_.find(address);
    if (block == blocks_.end()) return void(++out_.passed_over);
    const uint32_t number = block->second;
    if (kind == RequestKind::kFree) {
      blocks_.erase(block);
      if (!out_.requests.empty() && out_.requests.back().kind == RequestKind::kFreeLater &&
          out_.requests.back().block == number) {
        out_.requests.pop_back();
        out_.times.pop_back();
      }
    }
    add({kind, number});
  }

  void add(const ReplayRequest& request) {
    out_.requests.push_back(request);
    out_.times.push_back(now_);
  }

  const DeviceHistory& device_;
  Requests out_;
  std::unordered_map<uint64_t, uint32_t> blocks_;  // those that are live, by their addresses in the history
  std::unordered_map<uint64_t, std::pair<uint64_t, PoolId>> freed_by_;
  Numbers<uint64_t> streams_;
  Numbers<PoolId> pools_;
  uint64_t now_ = 0;
};

// One line of a stream.
class Line {
 public:
  explicit Line(std::string_view text) : text_(text) {}
  std::string_view word() {
    text_.remove_prefix(std::min(text_.find_first_not_of(' '), text_.size()));
    const std::string_view word = text_.substr(0, text_.find(' '));
    text_.remove_prefix(word.size());
    return word;
  }
  std::optional<uint64_t> number() {
    const std::string_view text = word();
    uint64_t value = 0;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
    if (text.empty() || read.ec != std::errc() || read.ptr != text.data() + text.size()) return std::nullopt;
    return value;
  }
  bool at_end() { return word().empty(); }

 private:
  std::string_view text_;
};

class StreamReader {
 public:
  // False: the line is none of a stream's.
  bool take(std::string_view text) {
    Line line(text);
    const std::string_view what = line.word();
    if (what == "step") {
      out_.steps.push_back(out_.requests.size());
      return line.at_end();
    }
    const auto id = line.number();
    if (!id) return false;
    if (what == "f") return line.at_end() && free(*id);
    const auto bytes = line.number(), stream = line.number();
    return what == "a" && bytes && *bytes > 0 && stream && line.at_end() && allocate(*id, *bytes, *stream);
  }
  Requests finish() {
    out_.streams = std::max(1u, streams_.count());
    return std::move(out_);
  }

 private:
  bool allocate(uint64_t id, uint64_t bytes, uint64_t stream) {
    if (!blocks_.try_emplace(id, out_.blocks).second) return false;
    out_.requests.push_back({RequestKind::kAllocate, out_.blocks++, bytes, streams_.of(stream)});
    return true;
  }
  bool free(uint64_t id) {
    const auto block = blocks_.find(id);
    if (block == blocks_.end()) return false;
    out_.requests.push_back({RequestKind::kFree, block->second});
    blocks_.erase(block);
    return true;
  }

  Requests out_;
  std::unordered_map<uint64_t, uint32_t> blocks_;
  Numbers<uint64_t> streams_;
};

}  // namespace

Requests requests_of(const DeviceHistory& device, size_t until) {
  return Extractor(device).run(until);
}

bool begins_as_stream(const std::string& start) {
  return start.starts_with("a ") || start.starts_with("f ") || start.starts_with("step");
}

std::optional<Requests> read_stream(const std::string& path, std::string* error) {
  std::ifstream file(path);
  if (!file) {
    *error = path + ": " + std::strerror(errno);
    return std::nullopt;
  }
  StreamReader reader;
  std::string line;
  for (size_t number = 1; std::getline(file, line); ++number) {
    if (reader.take(line)) continue;
    *error = path + ":" + std::to_string(number) + ": '" + line.substr(0, 80) +
             "' is no line of a stream: \"a ID BYTES STREAM\", \"f ID\" or \"step\"";
    return std::nullopt;
  }
  Requests requests = reader.finish();
  if (requests.blocks == 0) {
    *error = path + ": holds no request";
    return std::nullopt;
  }
  return requests;
}

uint64_t most_live(const Requests& requests) {
  std::vector<uint64_t> sizes(requests.blocks);
  uint64_t live = 0, most = 0;
  for (const ReplayRequest& request : requests.requests) {
    if (request.kind == RequestKind::kAllocate)
      live += sizes[request.block] =
          request.bytes > UINT64_MAX - kUnit ? request.bytes : (request.bytes + kUnit - 1) / kUnit * kUnit;
    else if (request.kind == RequestKind::kFree)
      live -= sizes[request.block];
    most = std::max(most, live);
  }
  return most;
}

}  // namespace spillway::tools
