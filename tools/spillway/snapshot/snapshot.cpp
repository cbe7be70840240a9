#include "tools/spillway/snapshot/snapshot.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <unordered_map>

#include "tools/spillway/snapshot/pickle.h"

namespace spillway::tools {
namespace {

using Id = Pickle::Id;

// Makes one of equal stacks. Where the file shares a stack, it is looked at once.
class Stacks {
 public:
  Stacks(const Pickle& pickle, MemoryHistory* out) : pickle_(pickle), out_(*out) {}

  StackId of(std::optional<Id> frames) {
    if (!frames || pickle_.items(*frames).empty()) return 0;
    const auto [known, is_new] = by_value_.try_emplace(*frames, 0);
    if (is_new) known->second = add(frames_of(*frames));
    return known->second;
  }

 private:
  std::vector<StackFrame> frames_of(Id list) const {
    std::vector<StackFrame> frames;
    for (const Id frame : pickle_.items(list)) {
      const auto text = [&](const char* key) {
        const auto value = pickle_.find(frame, key);
        return value ? pickle_.text(*value).value_or("") : std::string_view();
      };
      const auto line = pickle_.find(frame, "line");
      frames.push_back({text("name"), text("filename"), line ? pickle_.integer(*line).value_or(0) : 0});
    }
    return frames;
  }

  StackId add(std::vector<StackFrame> frames) {
    size_t hash = frames.size();
    for (const StackFrame& frame : frames)
      for (const size_t part : {std::hash<std::string_view>()(frame.function),
                                std::hash<std::string_view>()(frame.file), static_cast<size_t>(frame.line)})
        hash = hash * 1099511628211u ^ part;
    for (const StackId same : by_hash_[hash])
      if (out_.stacks[same] == frames) return same;
    out_.stacks.push_back(std::move(frames));
    const auto id = static_cast<StackId>(out_.stacks.size() - 1);
    by_hash_[hash].push_back(id);
    return id;
  }

  const Pickle& pickle_;
  MemoryHistory& out_;
  std::unordered_map<Id, StackId> by_value_;
  std::unordered_map<size_t, std::vector<StackId>> by_hash_;
};

Action action_of(std::string_view name) {
  static const std::map<std::string_view, Action> kActions = {
      {"alloc", Action::kAllocate},
      {"free_requested", Action::kFreeRequested},
      {"free_completed", Action::kFreeCompleted},
      {"segment_alloc", Action::kSegmentAllocate},
      {"segment_map", Action::kSegmentAllocate},
      {"segment_free", Action::kSegmentFree},
      {"segment_unmap", Action::kSegmentFree},
      {"oom", Action::kOutOfMemory},
  };
  const auto found = kActions.find(name);
  return found == kActions.end() ? Action::kOther : found->second;
}

class Loader {
 public:
  Loader(const Pickle& pickle, MemoryHistory* out) : pickle_(pickle), out_(*out), stacks_(pickle, out) {}

  void load(Id root) {
    if (const auto segments = pickle_.find(root, "segments"))
      for (const Id segment : pickle_.items(*segments)) load_segment(segment);
    if (const auto traces = pickle_.find(root, "device_traces")) {
      int device = 0;
      for (const Id trace : pickle_.items(*traces)) load_trace(device++, trace);
    }
    if (const auto settings = pickle_.find(root, "allocator_settings")) load_settings(*settings);
    if (const auto notes = pickle_.find(root, "external_annotations"))
      for (const Id note : pickle_.items(*notes)) load_note(note);
    for (auto& [number, device] : out_.devices) put_in_order(&device);
  }

 private:
  uint64_t whole(Id dictionary, const char* key) const {
    const auto value = pickle_.find(dictionary, key);
    return value ? static_cast<uint64_t>(pickle_.integer(*value).value_or(0)) : 0;
  }
  bool flag(Id dictionary, const char* key) const { return whole(dictionary, key) != 0; }
  std::string_view text(Id dictionary, const char* key) const {
    const auto value = pickle_.find(dictionary, key);
    return value ? pickle_.text(*value).value_or("") : std::string_view();
  }

  PoolId pool_of(Id from, const char* key) const {
    const auto value = pickle_.find(from, key);
    if (!value || pickle_.items(*value).size() != 2) return {};
    const auto part = [&](size_t i) {
      return static_cast<uint64_t>(pickle_.integer(pickle_.items(*value)[i]).value_or(0));
    };
    return {part(0), part(1)};
  }

  void load_segment(Id from) {
    const auto blocks = pickle_.find(from, "blocks");
    const uint64_t device = whole(from, "device");
    if (!blocks || device > kMostDevices) return pass_over();
    HistorySegment segment;
    segment.address = whole(from, "address");
    segment.size = whole(from, "total_size");
    segment.stream = whole(from, "stream");
    segment.pool = pool_of(from, "segment_pool_id");
    segment.large = text(from, "segment_type") == "large";
    segment.expandable = flag(from, "is_expandable");
    uint64_t at = segment.address;
    for (const Id block : pickle_.items(*blocks)) load_block(block, &at, &segment);
    out_.devices[static_cast<int>(device)].segments.push_back(std::move(segment));
  }

  // Before PyTorch 2.1 a block had no address: it follows the one before.
  void load_block(Id from, uint64_t* at, HistorySegment* segment) {
    HistoryBlock block;
    if (pickle_.find(from, "address")) *at = whole(from, "address");
    block.address = *at;
    block.size = whole(from, "size");
    block.requested = whole(from, "requested_size");
    const std::string_view state = text(from, "state");
    if (state == "active_allocated") block.state = BlockState::kAllocated;
    if (state.starts_with("active_") && state != "active_allocated") block.state = BlockState::kPendingFree;
    block.stack = stacks_.of(pickle_.find(from, "frames"));
    *at += block.size;
    if (block.size == 0 || block.size > segment->size) return pass_over();
    segment->blocks.push_back(block);
  }

  void load_trace(int device, Id list) {
    if (pickle_.items(list).empty()) return;
    auto& events = out_.devices[device].events;
    events.reserve(pickle_.items(list).size());
    for (const Id from : pickle_.items(list)) {
      HistoryEvent event;
      event.action = action_of(text(from, "action"));
      event.address = whole(from, event.action == Action::kOutOfMemory ? "device_free" : "addr");
      event.size = whole(from, "size");
      event.stream = whole(from, "stream");
      event.microseconds = whole(from, "time_us");
      event.pool = pool_of(from, "pool_id");
      event.stack = stacks_.of(pickle_.find(from, "frames"));
      if (pickle_.type(from) == Pickle::Type::kDictionary)
        events.push_back(event);
      else
        pass_over();
    }
  }

  // PyTorch's optimizers note when a step begins and ends. A device without a history has no steps.
  void load_note(Id from) {
    const auto device = out_.devices.find(static_cast<int>(whole(from, "device")));
    if (device == out_.devices.end() || text(from, "stage") != "START") return;
    if (text(from, "name").starts_with("Optimizer.step#"))
      device->second.optimizer_steps.push_back(whole(from, "time_us"));
  }

  void load_settings(Id dictionary) {
    const auto& entries = pickle_.items(dictionary);
    for (size_t i = 0; i + 1 < entries.size(); i += 2) {
      const auto key = pickle_.text(entries[i]);
      if (!key) continue;
      if (const auto value = pickle_.text(entries[i + 1]))
        out_.settings[std::string(*key)] = *value;
      else if (const auto number = pickle_.integer(entries[i + 1]))
        out_.settings[std::string(*key)] = pickle_.type(entries[i + 1]) != Pickle::Type::kBool
                                               ? std::to_string(*number)
                                               : (*number != 0 ? "True" : "False");
    }
  }

  static void put_in_order(DeviceHistory* device) {
    const auto by_address = [](const auto& a, const auto& b) { return a.address < b.address; };
    std::sort(device->segments.begin(), device->segments.end(), by_address);
    std::sort(device->optimizer_steps.begin(), device->optimizer_steps.end());
    for (HistorySegment& segment : device->segments)
      std::sort(segment.blocks.begin(), segment.blocks.end(), by_address);
  }

  void pass_over() { ++out_.passed_over; }

  static constexpr uint64_t kMostDevices = 1024;
  const Pickle& pickle_;
  MemoryHistory& out_;
  Stacks stacks_;
};

}  // namespace

std::optional<MemoryHistory> parse_snapshot(std::string bytes, std::string* error) {
  MemoryHistory snapshot;
  const auto read = std::make_shared<const Pickle>(Pickle::read(std::move(bytes)));
  snapshot.texts = read;
  const Pickle& pickle = *read;
  const bool has_form = pickle.has_root() && (pickle.find(pickle.root(), "segments") ||
                                              pickle.find(pickle.root(), "device_traces"));
  if (!has_form) {
    *error = "it is a pickle, but no memory snapshot of PyTorch's (torch.cuda.memory._dump_snapshot)";
    if (!pickle.incomplete().empty()) *error += ": " + pickle.incomplete();
    return std::nullopt;
  }
  snapshot.incomplete = pickle.incomplete();
  Loader(pickle, &snapshot).load(pickle.root());
  return snapshot;
}

std::optional<MemoryHistory> read_snapshot(const std::string& path, std::string* error) {
  std::ifstream file(path, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(file), {}};
  if (!file.good() && !file.eof()) {
    *error = path + ": " + std::strerror(errno);
    return std::nullopt;
  }
  auto snapshot = parse_snapshot(std::move(bytes), error);
  if (!snapshot) *error = path + ": " + *error;
  return snapshot;
}

}  // namespace spillway::tools
