// What PyTorch's tools read of the past: the ring of trace entries of each device, annotations, and the stack
// behind each block, as torch.cuda.memory._record_memory_history asks for them.
//
// Thread-safety: every function may be called from any thread; the settings that are asked for with each
// block are atomic. `gather` may take the interpreter's lock (GIL) and is called without any lock. Ownership:
// contexts are shared with who reads them. Errors: c10::Error for settings that make no sense.
#pragma once
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/util/ApproximateClock.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/mutex.h"

namespace spillway::libtorch {

namespace native = c10::cuda::CUDACachingAllocator;

using Context = std::shared_ptr<c10::GatheredContext>;

// Of c10::CachingDeviceAllocator since 2.11, and before of c10::cuda::CUDACachingAllocator.
using AnnotationEntry = decltype(native::SnapshotInfo::external_annotations)::value_type;

// The action of an annotation, in the versions that have it (2.14 and newer).
template <class Action>
constexpr std::optional<Action> annotation() {
  if constexpr (requires { Action::ANNOTATE; }) return Action::ANNOTATE;
  return std::nullopt;
}

// The newest entries, as many as are kept.
template <class Entry>
class Ring {
 public:
  void keep(size_t most) {
    most_ = std::max<size_t>(1, most);
    while (entries_.size() > most_) entries_.pop_front();
  }
  void add(Entry entry) {
    if (entries_.size() == most_) entries_.pop_front();
    entries_.push_back(std::move(entry));
  }
  void clear() { entries_.clear(); }
  std::vector<Entry> copy() const { return {entries_.begin(), entries_.end()}; }

 private:
  size_t most_ = 1;
  std::deque<Entry> entries_;
};

class History {
 public:
  struct Settings {
    bool enabled = false;
    native::CreateContextFn recorder = nullptr;
    size_t most_entries = 1;
    native::RecordContext when = native::RecordContext::NEVER;
    bool clear = true;
    std::vector<std::string> skipped;
  };
  void set(const Settings& settings);
  bool enabled() const { return enabled_.load(std::memory_order_relaxed); }

  // The stack of this thread, or null where contexts are not recorded from `level` on.
  Context gather(native::RecordContext level) const;
  // Whether trace entries carry stacks, and not only the blocks that are live.
  bool traces_carry_contexts() const {
    return when_.load(std::memory_order_relaxed) >= native::RecordContext::ALLOC;
  }

  void add(const native::TraceEntry& entry);
  void annotate(c10::DeviceIndex device, const std::vector<std::pair<std::string, std::string>>& metadata);

  // What was gathered for the block at `address`, and for pages from there on.
  void remember_block(uint64_t address, Context context);
  Context block_context(uint64_t address) const;
  void forget_block(uint64_t address);
  void remember_pages(uint64_t address, uint64_t bytes, Context context);
  Context pages_context(uint64_t address) const;
  void forget_pages(uint64_t address, uint64_t bytes);
  // Whether a block's or page's context is kept: then its end must be seen.
  bool remembers() const;

  // Copies with times in microseconds of the system's clock.
  std::vector<native::TraceEntry> trace(c10::DeviceIndex device) const;
  std::vector<AnnotationEntry> annotations() const;

  // The thread's own: torch.compile's innermost context, and what the program wants each entry to carry.
  static void push_compile_context(std::string context);
  static void pop_compile_context();
  static std::string compile_context();
  static std::string& user_metadata();

 private:
  using Clock = std::function<time_t(c10::approx_time_t)>;
  Clock microseconds() const;

  std::atomic<bool> enabled_{false};
  std::atomic<native::CreateContextFn> recorder_{nullptr};
  std::atomic<native::RecordContext> when_{native::RecordContext::NEVER};
  mutable c10::ApproximateClockToUnixTimeConverter clock_;

  mutable Mutex<LockOrder::kLeaf> mutex_;
  size_t most_entries_ SPILLWAY_GUARDED_BY(mutex_) = 1;
  std::unordered_set<int> skipped_ SPILLWAY_GUARDED_BY(mutex_);
  std::map<c10::DeviceIndex, Ring<native::TraceEntry>> traces_ SPILLWAY_GUARDED_BY(mutex_);
  Ring<AnnotationEntry> annotations_ SPILLWAY_GUARDED_BY(mutex_);
  std::unordered_map<uint64_t, Context> blocks_ SPILLWAY_GUARDED_BY(mutex_);
  struct Pages {
    uint64_t end = 0;
    Context context;
  };
  std::map<uint64_t, Pages> pages_ SPILLWAY_GUARDED_BY(mutex_);  // by their first address
};

}  // namespace spillway::libtorch
