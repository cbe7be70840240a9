#include "libtorch/rehearsal/probe/watch.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "libtorch/allocator_config.h"
#include "libtorch/rehearsal/history.h"
#include "libtorch/rehearsal/probe/python.h"
#include "libtorch/rehearsal/probe/stream.h"
#include "libtorch/rehearsal/result.h"
#include "libtorch/rehearsal/state.h"
#include "spillway/spillway.h"

namespace spillway::rehearsal {
namespace {

namespace native = c10::cuda::CUDACachingAllocator;
using Entry = native::TraceEntry;

bool is_native = false;

// A block is counted as PyTorch's statistics count it.
uint64_t rounded(uint64_t bytes) {
  constexpr uint64_t kSmallest = 512;
  return std::max(kSmallest, (bytes + kSmallest - 1) / kSmallest * kSmallest);
}

decltype(&spillway_query) find_query() {
  if (void* symbol = dlsym(RTLD_DEFAULT, "spillway_query"))
    return reinterpret_cast<decltype(&spillway_query)>(symbol);
  void* core = dlopen("libspillway.so", RTLD_NOW | RTLD_NOLOAD);
  return core == nullptr ? nullptr
                         : reinterpret_cast<decltype(&spillway_query)>(dlsym(core, "spillway_query"));
}

Levels levels_of_core(int device) {
  static const auto query = find_query();
  spillway_memory memory{};
  memory.size = sizeof memory;
  if (query == nullptr || query(device, &memory) != SPILLWAY_OK) return {};
  return {memory.live + memory.rounding, memory.reserved, memory.peak_allocated, memory.peak_reserved, 0};
}

std::optional<HistoryKind> kind_of(const Entry& entry) {
  switch (entry.action_) {
    case Entry::ALLOC:
      return HistoryKind::kAllocated;
    case Entry::FREE_REQUESTED:
      return HistoryKind::kFreeRequested;
    case Entry::FREE_COMPLETED:
      return HistoryKind::kFreeCompleted;
    case Entry::SEGMENT_ALLOC:
      return HistoryKind::kSegmentTaken;
    case Entry::SEGMENT_FREE:
      return HistoryKind::kSegmentGivenBack;
    case Entry::SEGMENT_MAP:
      return HistoryKind::kMapped;
    case Entry::SEGMENT_UNMAP:
      return HistoryKind::kUnmapped;
    case Entry::OOM:
      return HistoryKind::kFailed;
    default:
      return std::nullopt;
  }
}

void remember(const Entry& entry, Site site) {
  const auto kind = kind_of(entry);
  if (!kind) return;
  write_history({*kind,
                 entry.device_,
                 static_cast<uint64_t>(entry.addr_),
                 static_cast<uint64_t>(entry.size_),
                 reinterpret_cast<uint64_t>(entry.stream_),
                 {entry.mempool_.first, entry.mempool_.second},
                 site});
}

// Runs under the native allocator's lock: no Python, no lock but the state's, which is innermost.
void see(const Entry& entry) {
  State& state = rehearsal::state();
  if (state.forked.load(std::memory_order_relaxed)) return;
  const c10::DeviceIndex device = entry.device_;
  Levels levels = levels_of(device);
  // The ledger takes a block as not yet counted and a free as counted, as the native allocator tells them;
  // Spillway's counts a block before it tells it, and a free after.
  const bool changes = entry.action_ == Entry::ALLOC || entry.action_ == Entry::FREE_REQUESTED;
  if (!is_native && changes) levels.allocated -= std::min(levels.allocated, rounded(entry.size_));
  if (!is_native && entry.action_ == Entry::ALLOC) levels.peak_allocated = 0;
  const Locked lock(state.mutex);
  Ledger& ledger = state.ledger(device);
  const auto stream = reinterpret_cast<uint64_t>(entry.stream_);
  const bool has_place = entry.action_ == Entry::ALLOC || entry.action_ == Entry::OOM;
  const Site site = has_place ? state.sites.of(entry.context_) : 0;
  remember(entry, site);
  switch (entry.action_) {
    case Entry::ALLOC:
      ledger.allocated(entry.addr_, rounded(entry.size_), stream, site, levels);
      write_event(device, ledger, StreamEvent::kAllocated, entry.size_, site);
      break;
    case Entry::FREE_REQUESTED:
      if (const uint64_t ordinal = ledger.freed(entry.addr_, levels))
        write_event(device, ledger, StreamEvent::kFreed, ordinal, 0);
      break;
    case Entry::SEGMENT_ALLOC:
    case Entry::SEGMENT_MAP:
      ledger.segment(true, entry.size_, levels);
      write_event(device, ledger, StreamEvent::kGrew, entry.size_, 0);
      break;
    case Entry::SEGMENT_FREE:
    case Entry::SEGMENT_UNMAP:
      ledger.segment(false, entry.size_, levels);
      write_event(device, ledger, StreamEvent::kShrank, entry.size_, 0);
      break;
    case Entry::OOM:
      ledger.failed(entry.size_, levels);
      write_event(device, ledger, StreamEvent::kFailed, entry.size_, site);
      ++state.failure_count;
      if (state.failures.size() < kMostFailures)
        state.failures.push_back({device, entry.size_, levels.allocated, levels.reserved, entry.addr_, 0,
                                  ledger.events(), state.steps + 1, site, ledger.held_now()});
      break;
    default:
      break;
  }
  state.dirty.store(true, std::memory_order_relaxed);
}

// Runs without the allocator's lock.
void failed(int64_t device, size_t, size_t limit, size_t) {
  State& state = rehearsal::state();
  if (state.forked) return;
  {
    const Locked lock(state.mutex);
    if (!state.failures.empty() && state.failure_count <= kMostFailures &&
        state.failures.back().device == device)
      state.failures.back().limit = limit;
  }
  // The program may not survive this failure.
  name_sites();
  write_result();
}

std::string text_of(const std::exception& error) {
  const auto* typed = dynamic_cast<const c10::Error*>(&error);
  return typed == nullptr ? error.what() : typed->what_without_backtrace();
}

void refuse(native::CUDAAllocator& allocator, const std::exception& error) {
  State& state = rehearsal::state();
  const Locked lock(state.mutex);
  state.problem =
      "PyTorch's allocator '" + allocator.name() + "' tells nothing of its allocations: " + text_of(error);
}

// A history that keeps nothing, so that the program finds nothing in a later one that it has not
// recorded. Before 2.11 no action can be left out, and the last one is kept.
template <class Native>
void start_history(Native& allocator) {
  constexpr size_t kFewest = 1;
  constexpr auto kWhen = native::RecordContext::ALLOC;
  const std::vector<std::string> skipped{"alloc",         "free_requested", "free_completed",
                                         "segment_alloc", "segment_free",   "segment_map",
                                         "segment_unmap", "snapshot",       "oom"};
  if constexpr (requires { allocator.recordHistory(true, gather_stack, kFewest, kWhen, false, skipped); })
    allocator.recordHistory(true, gather_stack, kFewest, kWhen, false, skipped);
  else
    allocator.recordHistory(true, gather_stack, kFewest, kWhen, false);
}

}  // namespace

Levels levels_of(int device) {
  if (!is_native) return levels_of_core(device);
  constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  const auto stats = native::get()->getDeviceStats(static_cast<c10::DeviceIndex>(device));
  const auto& allocated = stats.allocated_bytes[kAll];
  const auto& reserved = stats.reserved_bytes[kAll];
  return {static_cast<uint64_t>(allocated.current), static_cast<uint64_t>(reserved.current),
          static_cast<uint64_t>(allocated.peak), static_cast<uint64_t>(reserved.peak),
          static_cast<uint64_t>(stats.num_alloc_retries)};
}

bool allocator_is_ready() {
  native::CUDAAllocator* allocator = native::allocator.load();
  return allocator != nullptr && allocator->initialized();
}

void watch_allocator() {
  native::CUDAAllocator& allocator = *native::get();
  State& state = rehearsal::state();
  {
    const Locked lock(state.mutex);
    state.allocator = allocator.name();
    if (allocator.name() == "native") {
      state.expandable_segments = libtorch::CudaConfig::expandable_segments();
      state.splits_are_limited = libtorch::Config::max_split_size() != std::numeric_limits<size_t>::max();
    }
    state.ledger(c10::cuda::device_count() - 1);
  }
  is_native = allocator.name() == "native";
  try {
    allocator.attachAllocatorTraceTracker(see);
    allocator.attachOutOfMemoryObserver(failed);
  } catch (const std::exception& error) {
    refuse(allocator, error);
    return;
  }
  keep_stacks();
}

void keep_stacks() {
  native::CUDAAllocator& allocator = *native::get();
  try {
    // A history of the program's own keeps its entries, and its stacks come with the events too.
    if (!allocator.isHistoryEnabled()) start_history(allocator);
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch)
    // Events come without stacks then, which their label says.
  }
}

}  // namespace spillway::rehearsal
