#include "tools/spillway/history/findings/growth.h"

#include <algorithm>
#include <array>
#include <unordered_map>

namespace spillway::tools {
namespace {

constexpr size_t kWindows = 8;
constexpr size_t kFewestEvents = 8 * kWindows;

// What each place held, in windows of equally many events from its first allocation on; the first quarter of
// the history, in which a program sets itself up, is left out.
class Watch {
 public:
  struct Course {
    size_t first = 0;
    uint64_t bytes = 0, allocations = 0;
    size_t window = 0;
    std::array<uint64_t, kWindows> least{};
  };

  Watch(const DeviceHistory& device, size_t until, StackNames* names)
      : device_(device), until_(until), names_(*names) {}

  const std::map<StackName, Course>& run() {
    for (size_t i = 0; i < until_; ++i) take(i, device_.events[i]);
    for (auto& [name, course] : courses_) go_on(&course, kWindows - 1);
    return courses_;
  }
  // Where its last two windows begin.
  size_t late(const Course& course) const {
    return course.first + (until_ - course.first) * (kWindows - 2) / kWindows;
  }
  bool is_long_enough(const Course& course) const { return until_ - course.first >= kFewestEvents; }

 private:
  struct Block {
    Course* course;
    uint64_t bytes;
  };

  size_t window_of(size_t event, const Course& course) const {
    return event < course.first ? 0 : (event - course.first) * kWindows / (until_ - course.first);
  }

  static void go_on(Course* course, size_t window) {
    while (course->window < window) course->least[++course->window] = course->bytes;
  }

  void take(size_t number, const HistoryEvent& event) {
    if (event.action == Action::kAllocate) return allocate(number, event);
    if (event.action == Action::kFreeRequested || event.action == Action::kFreeCompleted) free(number, event);
  }

  void allocate(size_t number, const HistoryEvent& event) {
    const auto [known, is_new] = courses_.try_emplace(names_.of(event.stack));
    Course& course = known->second;
    if (is_new) course.first = std::max(number, until_ / 4);
    go_on(&course, window_of(number, course));
    // What is there when the first window begins; up to then nothing is too little.
    if (is_new || number < course.first) course.least[0] = course.bytes + event.size;
    course.bytes += event.size;
    // From where the first window begins up to where the last one's least is.
    course.allocations += number >= course.first && course.window + 1 < kWindows ? 1 : 0;
    blocks_.insert_or_assign(event.address, Block{&course, event.size});
  }

  void free(size_t number, const HistoryEvent& event) {
    const auto block = blocks_.find(event.address);
    if (block == blocks_.end()) return;
    Course& course = *block->second.course;
    go_on(&course, window_of(number, course));
    course.bytes -= std::min(course.bytes, block->second.bytes);
    uint64_t& least = course.least[course.window];
    least = number < course.first ? course.bytes : std::min(least, course.bytes);
    blocks_.erase(block);
  }

  const DeviceHistory& device_;
  const size_t until_;
  StackNames& names_;
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
  for (const HeldBlock& block : now.blocks) {
    if (block.pending) continue;
    const StackName& name = names->of(block.stack);
    const auto course = courses.find(name);
    const bool is_young =
        course != courses.end() && block.born != kBeforeHistory && block.born >= watch.late(course->second);
    ++(is_young ? young : old)[name];
  }
  for (const auto& [name, blocks] : young) {
    const Watch::Course& course = courses.at(name);
    if (old.contains(name) || !watch.is_long_enough(course) || !rises_throughout(course)) continue;
    const uint64_t bytes = course.least.back() - course.least.front();
    const uint64_t steps = std::max<uint64_t>(course.allocations / blocks, 1);
    found[name] = {bytes, {steps, bytes / steps, true}};
  }
  return found;
}

}  // namespace spillway::tools
