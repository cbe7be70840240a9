#include "tools/spillway/replay/traced.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "tools/spillway/report/trace/trace_history.h"
#include "trace/reader.h"
#include "trace/writer.h"

namespace spillway::tools {
namespace {

// Of 64 bytes each: a request makes about three. Two rings of the most are all that a trace may have.
constexpr uint64_t kLeastRecords = 1u << 15, kMostRecords = 1u << 23;

// The requests that are allocations, in order: the trace has one kAllocate for each that was served.
std::vector<size_t> allocations_of(const Requests& requests) {
  std::vector<size_t> places;
  for (size_t i = 0; i < requests.requests.size(); ++i)
    if (requests.requests[i].kind == RequestKind::kAllocate) places.push_back(i);
  return places;
}

}  // namespace

TracedReplay::TracedReplay(const Requests& requests) : requests_(requests) {}

TracedReplay::~TracedReplay() {
  trace_.reset();
  std::error_code ignored;
  if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
}

trace::Trace* TracedReplay::start(std::string* error) {
  std::string folder = (std::filesystem::temp_directory_path() / "spillway-replay-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) {
    *error = folder + ": " + std::strerror(errno);
    return nullptr;
  }
  folder_ = folder;
  const uint64_t records =
      std::bit_ceil(std::clamp<uint64_t>(4 * requests_.requests.size(), kLeastRecords, kMostRecords));
  trace_ = trace::Trace::open(
      folder_ + "/trace",
      {.rings = 2, .records_per_ring = static_cast<uint32_t>(records), .side_table_bytes = 1u << 16}, error);
  return trace_.get();
}

DeviceHistory TracedReplay::finish(bool fails, std::string* incomplete) const {
  trace::Contents contents;
  if (!trace::read(folder_ + "/trace", &contents, incomplete)) return {};
  MemoryHistory history = take_history(&contents);
  *incomplete = history.incomplete;
  if (history.devices.empty()) return {};
  DeviceHistory device = std::move(history.devices.begin()->second);
  const std::vector<size_t> places = allocations_of(requests_);
  size_t next = 0, step = 0, last_failure = device.events.size();
  std::map<uint64_t, StackId> stacks;  // of the live blocks
  for (size_t i = 0; i < device.events.size(); ++i) {
    HistoryEvent& event = device.events[i];
    const size_t place = places.empty() ? 0 : places[std::min(next, places.size() - 1)];
    event.microseconds = requests_.time_of(place);
    for (; step < requests_.steps.size() && requests_.steps[step] <= place; ++step)
      device.step_events.push_back(i);
    if (event.action == Action::kOutOfMemory) {
      last_failure = i;
      event.stack = requests_.stack_of(requests_.requests[place].block);
      event.action = Action::kOther;  // it was tried again, unless it is the last one
    }
    if (event.action == Action::kAllocate) {
      event.stack = stacks[event.address] = requests_.stack_of(requests_.requests[place].block);
      ++next;
    } else if (event.action == Action::kFreeRequested || event.action == Action::kFreeCompleted) {
      event.stack = stacks[event.address];
    }
  }
  if (fails && last_failure < device.events.size()) device.events[last_failure].action = Action::kOutOfMemory;
  for (HistorySegment& segment : device.segments)
    for (HistoryBlock& block : segment.blocks)
      if (block.state != BlockState::kFree) block.stack = stacks[block.address];
  return device;
}

}  // namespace spillway::tools
