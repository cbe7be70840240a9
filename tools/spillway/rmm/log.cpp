#include "tools/spillway/rmm/log.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <deque>
#include <fstream>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "tools/spillway/rmm/line.h"
#include "tools/spillway/units.h"

namespace spillway::tools {
namespace {

constexpr uint64_t kDay = uint64_t{24} * 3600 * 1'000'000;
constexpr size_t kLongestLine = 4096;

// Names of places, each once. Texts stay where they are.
class Places {
 public:
  explicit Places(MemoryHistory* out) : out_(*out), texts_(std::make_shared<std::deque<std::string>>()) {
    out->texts = texts_;
  }
  StackId of(std::string_view thread, uint64_t size) {
    const int power = static_cast<int>(std::bit_width(size));
    const auto [known, is_new] = known_.try_emplace({std::string(thread), power}, 0);
    if (is_new) known->second = add(thread, power);
    return known->second;
  }

 private:
  StackId add(std::string_view thread, int power) {
    const auto from_power = [](int of) { return of == 0 ? 0 : uint64_t{1} << (of - 1); };
    const std::string until = power == 64 ? "more" : size_text(from_power(power + 1));
    texts_->push_back("thread " + std::string(thread) + " (" + size_text(from_power(power)) + " to " + until +
                      ")");
    out_.stacks.push_back({{texts_->back(), {}, 0}});
    return static_cast<StackId>(out_.stacks.size() - 1);
  }

  MemoryHistory& out_;
  const std::shared_ptr<std::deque<std::string>> texts_;
  std::map<std::pair<std::string, int>, StackId> known_;
};

class Loader {
 public:
  Loader(MemoryHistory* out, int number) : out_(*out), device_(out->devices[number]), places_(out) {
    out->requests_only = true;
    device_.rounding = 1;
  }

  void take(const RmmLine& line) {
    set_time(line.microseconds);
    if (line.action == RmmAction::kFree) return free(line);
    const StackId place = places_.of(line.thread, line.size);
    follow_up(line);
    if (line.action == RmmAction::kFailure) {
      failed_[std::string(line.thread)] = {line.size, device_.events.size()};
      return add(Action::kOutOfMemory, line, 0, line.size, place);
    }
    if (line.size == 0) return;  // nothing was taken
    if (line.pointer == 0 || line.size > UINT64_MAX - line.pointer) return void(++out_.passed_over);
    end_overlapped(line);
    live_[line.pointer] = {line.pointer, line.size, line.size, BlockState::kAllocated, place};
    freed_.erase(line.pointer);
    add(Action::kAllocate, line, line.pointer, line.size, place);
  }

  void finish() {
    for (const auto& [address, block] : live_) device_.loose_blocks.push_back(block);
    if (older_ > 0) say(count_text(older_, "block was", "blocks were") + " allocated before the log begins");
    if (lost_frees_ > 0) say(count_text(lost_frees_, "free is", "frees are") + " missing");
    if (retried_ > 0)
      out_.remark = count_text(retried_, "request was", "requests were") + " served when asked again";
  }

  void say(const std::string& text) { out_.incomplete += (out_.incomplete.empty() ? "" : "; ") + text; }

 private:
  struct Failure {
    uint64_t size = 0;
    size_t event = 0;
  };

  // Threads write in turns, so a time may be a little before the last one.
  void set_time(uint64_t time) {
    if (time + days_ < now_ && now_ - (time + days_) > kDay / 2 && time < kDay) days_ += kDay;
    now_ = std::max(now_, time + std::min(days_, UINT64_MAX - time));
  }

  // What the thread's failed request became.
  void follow_up(const RmmLine& line) {
    const auto failure = failed_.find(std::string(line.thread));
    if (failure == failed_.end()) return;
    if (failure->second.size == line.size) {
      device_.events[failure->second.event].action = Action::kOther;
      if (line.action == RmmAction::kAllocate) ++retried_;
    }
    failed_.erase(failure);
  }

  void add(Action action, const RmmLine& line, uint64_t address, uint64_t size, StackId place) {
    HistoryEvent event;
    event.action = action;
    event.address = address;
    event.size = size;
    event.stream = line.stream;
    event.microseconds = now_;
    event.stack = place;
    device_.events.push_back(event);
  }

  void add_free(const RmmLine& line, uint64_t address, uint64_t size, StackId place) {
    add(Action::kFreeRequested, line, address, size, place);
    add(Action::kFreeCompleted, line, address, size, place);
  }

  void free(const RmmLine& line) {
    if (line.pointer == 0 || line.size == 0) return;
    const auto block = live_.find(line.pointer);
    if (!freed_.insert(line.pointer).second || line.size > UINT64_MAX - line.pointer)
      return void(++out_.passed_over);
    if (block != live_.end()) {
      add_free(line, line.pointer, block->second.size, block->second.stack);
      live_.erase(block);
      return;
    }
    ++older_;
    add_free(line, line.pointer, line.size, 0);
  }

  void end_overlapped(const RmmLine& line) {
    auto block = live_.lower_bound(line.pointer);
    if (block != live_.begin()) {
      const auto before = std::prev(block);
      if (before->first + before->second.size > line.pointer) block = before;
    }
    while (block != live_.end() && block->first < line.pointer + line.size) {
      ++lost_frees_;
      add_free(line, block->first, block->second.size, block->second.stack);
      block = live_.erase(block);
    }
  }

  MemoryHistory& out_;
  DeviceHistory& device_;
  Places places_;
  std::map<uint64_t, HistoryBlock> live_;
  std::unordered_set<uint64_t> freed_;               // addresses that were freed and not used since
  std::unordered_map<std::string, Failure> failed_;  // by thread: the last one, of which nothing is known yet
  uint64_t now_ = 0, days_ = 0, older_ = 0, lost_frees_ = 0, retried_ = 0;
};

// One line, of which no more than `kLongestLine` bytes are kept. False: the file is at its end.
bool next_line(std::istream& lines, std::string* line, bool* ended) {
  line->clear();
  std::streambuf& in = *lines.rdbuf();
  int next = in.sbumpc();
  if (next == std::char_traits<char>::eof()) return false;
  for (; next != '\n' && next != std::char_traits<char>::eof(); next = in.sbumpc())
    if (line->size() < kLongestLine) *line += static_cast<char>(next);
  *ended = next == '\n';
  return true;
}

// "run.dev3.csv" → 3.
int device_of(const std::string& path) {
  const size_t mark = path.rfind(".dev");
  int device = 0;
  if (mark == path.npos || path.find('/', mark) != path.npos) return 0;
  const char* const begin = path.data() + mark + 4;
  const auto read = std::from_chars(begin, path.data() + path.size(), device);
  const bool whole = read.ec == std::errc() && (read.ptr == path.data() + path.size() || *read.ptr == '.');
  return whole && device >= 0 && device < 1024 ? device : 0;
}

}  // namespace

std::optional<MemoryHistory> parse_rmm_log(std::istream& lines, int device, std::string* error) {
  MemoryHistory history;
  Loader loader(&history, device);
  RmmColumns columns;
  std::string text;
  uint64_t number = 0, whole = 0;
  bool ended = true, read = true;
  while (next_line(lines, &text, &ended)) {
    ++number;
    if (const auto header = RmmColumns::of_header(text)) {
      columns = *header;
      ++whole;
      continue;
    }
    const auto line = columns.read(text);
    read = line.has_value();
    if (line) {
      loader.take(*line);
      ++whole;
    } else if (ended && !text.empty()) {
      ++history.passed_over;
    }
  }
  if (whole == 0) {
    *error = "it is no log of RMM's: it has no line \"Thread,Time,Action,Pointer,Size,Stream\"";
    return std::nullopt;
  }
  if (!ended && !read) loader.say("the file ends within line " + std::to_string(number));
  loader.finish();
  return history;
}

std::optional<MemoryHistory> read_rmm_log(const std::string& path, std::string* error) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    *error = path + ": " + std::strerror(errno);
    return std::nullopt;
  }
  auto history = parse_rmm_log(file, device_of(path), error);
  if (!history) *error = path + ": " + *error;
  return history;
}

}  // namespace spillway::tools
