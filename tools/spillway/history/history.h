// What a process's allocator held, and what led there, as data: from whatever file tells it.
//
// Thread-safety: plain values. Ownership: texts are views of what `MemoryHistory::texts` keeps. Units: bytes,
// microseconds. Errors: what a file does not hold, or holds in another form, stays empty and is counted in
// `passed_over`.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace spillway::tools {

using StackId = uint32_t;  // 0: none was recorded

struct StackFrame {
  std::string_view function, file;
  int64_t line = 0;
  bool operator==(const StackFrame&) const = default;
};

enum class BlockState : uint8_t { kFree, kAllocated, kPendingFree };

struct HistoryBlock {
  uint64_t address = 0, size = 0, requested = 0;
  BlockState state = BlockState::kFree;
  StackId stack = 0;
};

using PoolId = std::pair<uint32_t, uint32_t>;  // (0, 0): the default pool; PyTorch counts them

struct HistorySegment {
  uint64_t address = 0, size = 0;
  uint64_t stream = 0;
  PoolId pool;
  bool large = false, expandable = false;
  std::vector<HistoryBlock> blocks;  // by address
};

enum class Action : uint8_t {
  kAllocate,
  kFreeRequested,
  kFreeCompleted,
  kSegmentAllocate,  // or map
  kSegmentFree,      // or unmap
  kOutOfMemory,
  kOther
};

struct HistoryEvent {
  Action action = Action::kOther;
  StackId stack = 0;
  uint64_t address = 0;  // for kOutOfMemory what the card had free
  uint64_t size = 0;     // asked, not rounded
  uint64_t stream = 0, microseconds = 0;
  PoolId pool;
};
static_assert(sizeof(HistoryEvent) == 48, "a history has millions");

struct DeviceHistory {
  std::vector<HistorySegment> segments;   // by address, as they were when the snapshot was written
  std::vector<HistoryEvent> events;       // in order, up to then
  std::vector<uint64_t> optimizer_steps;  // when each began, where PyTorch noted it
  std::vector<size_t> optimizer_events;   // before which event each began, where a trace noted it
  std::vector<size_t> step_events;        // before which event each began, where the program said it
  // In use at the end, in no segment that the file tells of: each counts as memory of its own.
  std::vector<HistoryBlock> loose_blocks;
  std::vector<bool> placed_by_size;  // by event: its stack is that of other blocks of its size; empty: none
  uint64_t rounding = 512;           // to what the allocator rounds a block up; a power of two
  // In use at the end, though no event and no block tells of it: allocated before the history, not freed in
  // it.
  uint64_t unknown_bytes = 0;
  // By the allocator at the end, where the file counts it: also in segments that no event and no block tells
  // of.
  std::optional<uint64_t> held_bytes;
};

// Before which events the program's steps began, as it or its optimizer said to Spillway.
inline const std::vector<size_t>& told_steps(const DeviceHistory& device) {
  return device.step_events.empty() ? device.optimizer_events : device.step_events;
}

struct MemoryHistory {
  std::shared_ptr<const void> texts;  // what the texts are views of
  std::map<int, DeviceHistory> devices;
  // Innermost frame first. One frame without a file is no stack, but a name for what has none.
  std::vector<std::vector<StackFrame>> stacks{{}};
  // What is said of memory whose stack is not known.
  const char* without_stack = "a thread without a Python stack, such as the backward pass";
  std::map<std::string, std::string> settings;  // of the allocator
  bool of_spillway = false;                     // its allocator's: what PyTorch's settings say does not count
  // The file tells neither what the allocator held beside its blocks, nor what was free when a request
  // failed.
  bool requests_only = false;
  uint64_t passed_over = 0;  // entries that are not in the form that is known
  std::string remark;        // what else is known of the requests; "" without
  std::string incomplete;    // where the file ends early, and why; "" of a whole one
};

}  // namespace spillway::tools
