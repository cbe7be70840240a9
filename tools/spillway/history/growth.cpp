#include "tools/spillway/history/growth.h"

#include <algorithm>
#include <array>
#include <unordered_map>

namespace spillway::tools {
namespace {

constexpr size_t kWindows = 8;
constexpr size_t kFewestEvents = 8 * kWindows;

// What each place held, in windows of equally many events; the first quarter of the history, in which a
// program sets itself up, is left out.
class Watch {
 public:
  Watch(const DeviceHistory& device, size_t until, StackNames* names)
      : device_(device), until_(until), first_(until / 4), names_(*names) {}

  struct Course {
    uint64_t bytes = 0, allocations = 0;
    std::array<uint64_t, kWindows> least{};
  };

  const std::map<StackName, Course>& run() {
    for (size_t i = 0; i < until_; ++i) {
      if (i >= first_ && window_of(i) != window_) begin(window_of(i));
      take(device_.events[i]);
    }
    return courses_;
  }
  // The first event of the last two windows.
  size_t late() const { return first_ + (until_ - first_) * (kWindows - 2) / kWindows; }

 private:
  static constexpr size_t kNone = kWindows;
  struct Block {
    Course* course;
    uint64_t bytes;
  };

  size_t window_of(size_t event) const { return (event - first_) * kWindows / (until_ - first_); }

  void begin(size_t window) {
    window_ = window;
    for (auto& [name, course] : courses_) course.least[window_] = course.bytes;
  }

  void take(const HistoryEvent& event) {
    if (event.action == Action::kAllocate) return allocate(event);
    if (event.action == Action::kFreeRequested || event.action == Action::kFreeCompleted) free(event);
  }

  void allocate(const HistoryEvent& event) {
    Course& course = courses_[names_.of(event.stack)];
    course.bytes += event.size;
    course.allocations += window_ + 1 < kWindows ? 1 : 0;  // up to where the last one's least is
    blocks_.insert_or_assign(event.address, Block{&course, event.size});
  }

  void free(const HistoryEvent& event) {
    const auto block = blocks_.find(event.address);
    if (block == blocks_.end()) return;
    Course& course = *block->second.course;
    course.bytes -= std::min(course.bytes, block->second.bytes);
    if (window_ != kNone) course.least[window_] = std::min(course.least[window_], course.bytes);
    blocks_.erase(block);
  }

  const DeviceHistory& device_;
  const size_t until_, first_;
  StackNames& names_;
  size_t window_ = kNone;
  std::map<StackName, Course> courses_;
  std::unordered_map<uint64_t, Block> blocks_;
};

bool rises_throughout(const Watch::Course& course) {
  return std::ranges::adjacent_find(course.least, std::ranges::greater_equal()) == course.least.end();
}

}  // namespace

std::map<StackName, ReplacedGrowth> what_is_replaced(const DeviceHistory& device, const Moment& now,
                                                     StackNames* names) {
  std::map<StackName, ReplacedGrowth> found;
  if (now.event < kFewestEvents) return found;
  Watch watch(device, now.event, names);
  const auto& courses = watch.run();
  std::map<StackName, uint64_t> young, old;  // blocks
  for (const HeldBlock& block : now.blocks)
    if (!block.pending)
      ++(block.born != kBeforeHistory && block.born >= watch.late() ? young : old)[names->of(block.stack)];
  for (const auto& [name, blocks] : young) {
    const auto course = courses.find(name);
    if (old.contains(name) || course == courses.end() || !rises_throughout(course->second)) continue;
    const uint64_t bytes = course->second.least.back() - course->second.least.front();
    const uint64_t steps = std::max<uint64_t>(course->second.allocations / blocks, 1);
    found[name] = {bytes, {steps, bytes / steps, true}};
  }
  return found;
}

}  // namespace spillway::tools
