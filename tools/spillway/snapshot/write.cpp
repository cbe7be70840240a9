#include "tools/spillway/snapshot/write.h"

#include <optional>
#include <vector>

#include "tools/spillway/snapshot/pickle/pickle_writer.h"
#include "tools/spillway/snapshot/snapshot.h"

namespace spillway::tools {
namespace {

const char* name_of(BlockState state) {
  switch (state) {
    case BlockState::kAllocated:
      return "active_allocated";
    case BlockState::kPendingFree:
      return "active_pending_free";
    case BlockState::kFree:
      return "inactive";
  }
  return "inactive";
}

// Null: PyTorch has no such entry.
const char* name_of(Action action) {
  switch (action) {
    case Action::kAllocate:
      return "alloc";
    case Action::kFreeRequested:
      return "free_requested";
    case Action::kFreeCompleted:
      return "free_completed";
    case Action::kSegmentAllocate:
      return "segment_map";
    case Action::kSegmentFree:
      return "segment_unmap";
    case Action::kOutOfMemory:
      return "oom";
    case Action::kOther:
      return nullptr;
  }
  return nullptr;
}

class SnapshotWriter {
 public:
  explicit SnapshotWriter(const MemoryHistory& history) : history_(history), stacks_(history.stacks.size()) {}

  std::string run() && {
    out_.open_dictionary();
    out_.text("segments");
    out_.open_list();
    for (const auto& [number, device] : history_.devices) write_segments(number, device);
    out_.close_list();
    out_.text("device_traces");
    write_traces();
    out_.text("allocator_settings");
    out_.open_dictionary();
    for (const auto& [key, value] : history_.settings) entry(key, value);
    if (!history_.incomplete.empty()) entry(kIncompleteSetting, history_.incomplete);
    out_.close_dictionary();
    out_.text("external_annotations");
    out_.open_list();
    for (const auto& [number, device] : history_.devices) write_steps(number, device);
    out_.close_list();
    out_.close_dictionary();
    return std::move(out_).finish();
  }

 private:
  void entry(std::string_view key, std::string_view value) {
    out_.text(key);
    out_.text(value);
  }
  void entry(std::string_view key, uint64_t value) {
    out_.text(key);
    out_.whole(value);
  }
  void entry(std::string_view key, PoolId value) {
    out_.text(key);
    out_.pair_of_wholes(value.first, value.second);
  }

  // What lies in no segment is shown as one of its own.
  void write_segments(int number, const DeviceHistory& device) {
    for (const HistorySegment& segment : device.segments) write(number, segment);
    for (const HistoryBlock& block : device.loose_blocks) {
      HistorySegment own;
      own.address = block.address;
      own.size = block.size;
      own.large = true;
      own.blocks = {block};
      write(number, own);
    }
  }

  // A stack is written once.
  void frames(StackId stack) {
    out_.text("frames");
    if (const auto& kept = stacks_[stack]; kept.has_value()) return out_.again(kept.value());
    out_.open_list();
    for (const StackFrame& frame : history_.stacks[stack]) {
      out_.open_dictionary();
      entry("name", frame.function);
      entry("filename", frame.file);
      entry("line", static_cast<uint64_t>(frame.line));
      out_.close_dictionary();
    }
    out_.close_list();
    stacks_[stack] = out_.keep();
  }

  void write(int device, const HistorySegment& segment) {
    uint64_t allocated = 0, active = 0, requested = 0;
    for (const HistoryBlock& block : segment.blocks) {
      if (block.state == BlockState::kFree) continue;
      active += block.size;
      requested += block.requested;
      if (block.state == BlockState::kAllocated) allocated += block.size;
    }
    out_.open_dictionary();
    entry("device", static_cast<uint64_t>(device));
    entry("address", segment.address);
    entry("total_size", segment.size);
    entry("allocated_size", allocated);
    entry("active_size", active);
    entry("requested_size", requested);
    entry("stream", segment.stream);
    entry("segment_type", std::string_view(segment.large ? "large" : "small"));
    entry("segment_pool_id", segment.pool);
    out_.text("is_expandable");
    out_.truth(segment.expandable);
    frames(0);
    out_.text("blocks");
    out_.open_list();
    for (const HistoryBlock& block : segment.blocks) write(block);
    out_.close_list();
    out_.close_dictionary();
  }

  void write(const HistoryBlock& block) {
    out_.open_dictionary();
    entry("address", block.address);
    entry("size", block.size);
    entry("requested_size", block.requested);
    entry("state", std::string_view(name_of(block.state)));
    frames(block.stack);
    out_.close_dictionary();
  }

  // A list for each device, by number.
  void write_traces() {
    out_.open_list();
    int next = 0;
    for (const auto& [number, device] : history_.devices) {
      for (; next < number; ++next) {
        out_.open_list();
        out_.close_list();
      }
      out_.open_list();
      for (const HistoryEvent& event : device.events)
        history_.requests_only ? write_with_segment(event) : write(event);
      out_.close_list();
      next = number + 1;
    }
    out_.close_list();
  }

  // As PyTorch's optimizers note them. Without a clock a note would stand nowhere.
  void write_steps(int number, const DeviceHistory& device) {
    const auto& events = device.events;
    if (events.empty() || events.front().microseconds == events.back().microseconds) return;
    for (const uint64_t time : device.optimizer_steps) write_step(number, time);
    for (const size_t event : told_steps(device))
      if (event < events.size()) write_step(number, events[event].microseconds);
  }
  void write_step(int number, uint64_t time) {
    out_.open_dictionary();
    entry("stage", std::string_view("START"));
    entry("name", std::string_view("Optimizer.step#Spillway"));
    entry("device", static_cast<uint64_t>(number));
    entry("time_us", time);
    out_.close_dictionary();
  }

  void write_with_segment(const HistoryEvent& event) {
    HistoryEvent own = event;
    own.action = event.action == Action::kAllocate ? Action::kSegmentAllocate : Action::kSegmentFree;
    own.stack = 0;
    if (event.action == Action::kAllocate) write(own);
    write(event);
    if (event.action == Action::kFreeCompleted) write(own);
  }

  void write(const HistoryEvent& event) {
    const char* action = name_of(event.action);
    if (action == nullptr) return;
    out_.open_dictionary();
    entry("action", std::string_view(action));
    entry(event.action == Action::kOutOfMemory ? "device_free" : "addr", event.address);
    entry("size", event.size);
    entry("stream", event.stream);
    entry("time_us", event.microseconds);
    entry("pool_id", event.pool);
    frames(event.stack);
    out_.close_dictionary();
  }

  const MemoryHistory& history_;
  PickleWriter out_;
  std::vector<std::optional<PickleWriter::Kept>> stacks_;
};

}  // namespace

std::string snapshot_of(const MemoryHistory& history) {
  return SnapshotWriter(history).run();
}

}  // namespace spillway::tools
