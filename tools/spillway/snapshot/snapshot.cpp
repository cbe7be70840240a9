#include "tools/spillway/snapshot/snapshot.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <span>
#include <utility>

#include "base/utf8.h"
#include "tools/spillway/snapshot/event_taker.h"
#include "tools/spillway/snapshot/pickle/pickle.h"
#include "tools/spillway/snapshot/stacks.h"

namespace spillway::tools {
namespace {

using Id = Pickle::Id;

class Loader {
 public:
  // `events`: those that were taken while the pickle was read.
  Loader(const Pickle& pickle, Stacks* stacks, std::vector<HistoryEvent>* events, MemoryHistory* out)
      : pickle_(pickle), stacks_(*stacks), events_(*events), out_(*out) {}

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

  void load_segment(Id from) {
    const auto blocks = pickle_.find(from, "blocks");
    const uint64_t device = whole(from, "device");
    if (!blocks || device > kMostDevices) return pass_over();
    HistorySegment segment;
    segment.address = whole(from, "address");
    segment.size = whole(from, "total_size");
    segment.stream = whole(from, "stream");
    if (const auto pool = pickle_.find(from, "segment_pool_id")) segment.pool = pool_of(pickle_, *pool);
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
    block.stack = stacks_.of(pickle_, pickle_.find(from, "frames"), kEveryId);
    *at += block.size;
    if (block.size == 0 || block.size > segment->size) return pass_over();
    segment->blocks.push_back(block);
  }

  void load_trace(int device, Id list) {
    const std::vector<Id>& items = pickle_.items(list);
    if (items.empty()) return;
    auto& events = out_.devices[device].events;
    const auto number_of = [&](size_t i) -> std::optional<size_t> {
      if (pickle_.type(items[i]) != Pickle::Type::kRecord) return std::nullopt;
      return static_cast<size_t>(pickle_.integer(items[i]).value_or(0));
    };
    bool are_all = items.size() == events_.size();
    for (size_t i = 0; i < items.size() && are_all; ++i) are_all = number_of(i) == i;
    if (are_all) {  // of one device, as most are: they need not be there twice
      events = std::move(events_);
      events_.clear();
      return;
    }
    for (size_t i = 0; i < items.size(); ++i) {
      const std::optional<size_t> number = number_of(i);
      if (number && *number < events_.size())
        events.push_back(events_[*number]);
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
  static constexpr Id kEveryId = UINT32_MAX;  // nothing is forgotten any more
  const Pickle& pickle_;
  Stacks& stacks_;
  std::vector<HistoryEvent>& events_;
  MemoryHistory& out_;
};

class File {
 public:
  explicit File(const std::string& path) : descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  int descriptor() const { return descriptor_; }
  // Of a regular file.
  std::optional<uint64_t> size() const {
    struct stat status{};
    if (descriptor_ < 0 || ::fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode))
      return std::nullopt;
    return static_cast<uint64_t>(status.st_size);
  }

 private:
  const int descriptor_;
};

}  // namespace

std::optional<MemoryHistory> parse_snapshot(ByteStream bytes, std::string* error) {
  MemoryHistory snapshot;
  Stacks stacks(&snapshot);
  EventTaker taker(&stacks);
  const Pickle pickle =
      Pickle::read(std::move(bytes), [&taker](const Pickle& read, std::span<const Id> items, Id first) {
        return taker.take(read, items, first);
      });
  snapshot.texts = pickle.texts();
  const bool has_form = pickle.has_root() && (pickle.find(pickle.root(), "segments") ||
                                              pickle.find(pickle.root(), "device_traces"));
  if (!has_form) {
    *error = "it is a pickle, but no memory snapshot of PyTorch's (torch.cuda.memory._dump_snapshot)";
    if (!pickle.incomplete().empty()) *error += ": " + pickle.incomplete();
    return std::nullopt;
  }
  snapshot.incomplete = pickle.incomplete();
  Loader(pickle, &stacks, &taker.events(), &snapshot).load(pickle.root());
  if (const auto lacks = snapshot.settings.extract(kIncompleteSetting); !lacks.empty())
    snapshot.incomplete += (snapshot.incomplete.empty() ? "" : "; ") + valid_utf8(lacks.mapped());
  return snapshot;
}

std::optional<MemoryHistory> parse_snapshot(std::string_view bytes, std::string* error) {
  return parse_snapshot(ByteStream(bytes), error);
}

std::optional<MemoryHistory> read_snapshot(const std::string& path, std::string* error) {
  const File file(path);
  std::optional<MemoryHistory> snapshot;
  if (const auto size = file.size()) {
    snapshot = parse_snapshot(ByteStream(file.descriptor(), *size), error);
  } else {  // a pipe, which can be read once
    std::ifstream stream(path, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(stream), {}};
    if (!stream.good() && !stream.eof()) {
      *error = path + ": " + std::strerror(errno);
      return std::nullopt;
    }
    snapshot = parse_snapshot(bytes, error);
  }
  if (!snapshot) *error = path + ": " + *error;
  return snapshot;
}

}  // namespace spillway::tools
