#include "tools/spillway/rehearse/report/history.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tools/spillway/history/moment.h"

namespace spillway::tools {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kFirstLine = "spillway-history 1";
constexpr size_t kMostPlaces = size_t{1} << 20;

struct Line {
  char kind = 0;
  uint64_t device = 0, address = 0, bytes = 0, stream = 0, pool = 0, pool_of_user = 0, place = 0;
};

std::optional<Line> read_line(std::string_view text) {
  Line line;
  if (text.size() < 2 || text[1] != ' ') return std::nullopt;
  line.kind = text[0];
  const char* at = text.data() + 1;
  const char* const end = text.data() + text.size();
  for (uint64_t* field : {&line.device, &line.address, &line.bytes, &line.stream, &line.pool,
                          &line.pool_of_user, &line.place}) {
    if (at == end || *at != ' ') return std::nullopt;
    const auto [rest, error] = std::from_chars(at + 1, end, *field, 16);
    if (error != std::errc()) return std::nullopt;
    at = rest;
  }
  return at == end ? std::optional(line) : std::nullopt;
}

// The allocator's segments and blocks, followed forwards to the end.
class Loader {
 public:
  Loader(MemoryHistory* out, int device) : out_(*out), device_(out->devices[device]), number_(device) {
    out->texts = texts_;
    device_.step_events.push_back(0);
  }

  void take(std::string_view text) {
    if (text.starts_with("name ")) return name(text.substr(5));
    if (text.starts_with("step ")) return void(step_ended_ = true);
    if (text == "cut") return void(out_.incomplete = "the run has more events than a page is made of");
    const auto line = read_line(text);
    if (!line || line->place >= kMostPlaces) return void(++out_.passed_over);
    if (line->device == static_cast<uint64_t>(number_)) take(*line);
  }

  void finish() {
    for (const auto& [address, piece] : pieces_) add_segment(address, piece);
    for (const auto& [address, block] : blocks_)
      if (!covered_.contains(address)) device_.loose_blocks.push_back(block);
  }

 private:
  struct Piece {
    uint64_t size = 0, stream = 0;
    PoolId pool;
    bool expandable = false;
  };

  static PoolId pool_of(const Line& line) {
    return {static_cast<uint32_t>(line.pool), static_cast<uint32_t>(line.pool_of_user)};
  }

  void take(const Line& line) {
    switch (line.kind) {
      case 'a':
        return allocate(line);
      case 'f':
        return free_later(line);
      case 'c':
        return free(line);
      case '+':
      case 'm':
        return take_memory(line);
      case '-':
      case 'u':
        return give_back(line);
      case '!':
        return add(Action::kOutOfMemory, line, stack_of(line));
      default:
        ++out_.passed_over;
    }
  }

  void add(Action action, const Line& line, StackId stack) {
    if (step_ended_) device_.step_events.push_back(device_.events.size());
    step_ended_ = false;
    device_.events.push_back({action, stack, line.address, line.bytes, line.stream, 0, pool_of(line)});
  }

  // Places are named later than they are used.
  StackId stack_of(const Line& line) {
    const auto stack = static_cast<StackId>(line.place + 1);
    if (out_.stacks.size() <= stack) out_.stacks.resize(stack + 1);
    return stack;
  }

  void allocate(const Line& line) {
    if (blocks_.contains(line.address)) return void(++out_.passed_over);
    const StackId stack = stack_of(line);
    blocks_[line.address] = {line.address, rounded_block(line.bytes), line.bytes, BlockState::kAllocated,
                             stack};
    add(Action::kAllocate, line, stack);
  }

  void free_later(const Line& line) {
    const auto block = blocks_.find(line.address);
    if (block == blocks_.end() || block->second.state != BlockState::kAllocated)
      return void(++out_.passed_over);
    block->second.state = BlockState::kPendingFree;
    add(Action::kFreeRequested, line, block->second.stack);
  }

  void free(const Line& line) {
    const auto block = blocks_.find(line.address);
    if (block == blocks_.end()) return void(++out_.passed_over);
    add(Action::kFreeCompleted, line, block->second.stack);
    blocks_.erase(block);
  }

  void take_memory(const Line& line) {
    if (line.bytes == 0 || line.bytes > UINT64_MAX - line.address) return void(++out_.passed_over);
    add(Action::kSegmentAllocate, line, 0);
    pieces_[line.address] = {line.bytes, line.stream, pool_of(line), line.kind == 'm'};
  }

  void give_back(const Line& line) {
    if (line.bytes > UINT64_MAX - line.address) return void(++out_.passed_over);
    add(Action::kSegmentFree, line, 0);
    const uint64_t end = line.address + line.bytes;
    auto piece = pieces_.upper_bound(line.address);
    if (piece != pieces_.begin()) --piece;
    while (piece != pieces_.end() && piece->first < end) {
      const auto [from, was] = *piece;
      const uint64_t until = from + was.size;
      if (until <= line.address) {
        ++piece;
        continue;
      }
      piece = pieces_.erase(piece);
      if (from < line.address) keep(from, line.address, was);
      if (until > end) keep(end, until, was);
    }
  }

  void keep(uint64_t begin, uint64_t end, Piece piece) {
    piece.size = end - begin;
    pieces_[begin] = piece;
  }

  // A block may reach over pieces that touch: it stands in the one in which it begins.
  void add_segment(uint64_t address, const Piece& piece) {
    HistorySegment segment;
    segment.address = address;
    segment.size = piece.size;
    segment.stream = piece.stream;
    segment.pool = piece.pool;
    segment.expandable = piece.expandable;
    segment.large = piece.size > (uint64_t{2} << 20) || piece.expandable;
    for (auto block = blocks_.lower_bound(address);
         block != blocks_.end() && block->first < address + piece.size; ++block) {
      segment.blocks.push_back(block->second);
      covered_.insert(block->first);
    }
    device_.segments.push_back(std::move(segment));
  }

  void name(std::string_view text) {
    uint64_t place = 0;
    const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), place);
    const Json names =
        error == std::errc() ? Json::parse(rest, text.data() + text.size(), nullptr, false) : Json();
    if (place >= kMostPlaces || !names.is_object()) return void(++out_.passed_over);
    if (out_.stacks.size() <= place + 1) out_.stacks.resize(place + 2);
    auto& stack = out_.stacks[place + 1];
    stack.clear();
    const Json frames = names.value("frames", Json::array());
    for (const Json& frame : frames)
      if (frame.is_array() && frame.size() == 3 && frame[0].is_string() && frame[1].is_string() &&
          frame[2].is_number_unsigned())
        stack.push_back({keep_text(frame[0]), keep_text(frame[1]), frame[2].get<int64_t>()});
    const auto label = names.find("label");
    if (stack.empty() && label != names.end() && label->is_string())
      stack.push_back({keep_text(*label), {}, 0});
  }

  std::string_view keep_text(const Json& text) { return *texts_->insert(text.get<std::string>()).first; }

  MemoryHistory& out_;
  DeviceHistory& device_;
  const int number_;
  const std::shared_ptr<std::set<std::string>> texts_ = std::make_shared<std::set<std::string>>();
  std::map<uint64_t, HistoryBlock> blocks_;
  std::map<uint64_t, Piece> pieces_;
  std::set<uint64_t> covered_;  // blocks that lie in a piece
  bool step_ended_ = false;
};

}  // namespace

std::optional<MemoryHistory> parse_rehearsed_history(std::istream& lines, int device) {
  std::string line;
  if (!std::getline(lines, line) || line != kFirstLine) return std::nullopt;
  MemoryHistory history;
  Loader loader(&history, device);
  while (std::getline(lines, line))
    if (!lines.eof()) loader.take(line);  // a line without an end was not written whole
  loader.finish();
  return history;
}

std::optional<MemoryHistory> read_rehearsed_history(const std::string& path, int device) {
  std::ifstream file(path, std::ios::binary);
  return file ? parse_rehearsed_history(file, device) : std::nullopt;
}

}  // namespace spillway::tools
