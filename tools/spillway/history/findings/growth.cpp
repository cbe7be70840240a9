#include "tools/spillway/history/findings/growth.h"

#include <algorithm>
#include <array>
#include <functional>
#include <set>
#include <unordered_map>

namespace spillway::tools {
namespace {

using NameOf = std::function<const StackName&(StackId)>;

constexpr size_t kWindows = 8;
constexpr size_t kFewestEvents = 8 * kWindows;
constexpr uint64_t kPartSeen = 32;  // of what a place holds: the least that it must be seen to grow by

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

  Watch(const DeviceHistory& device, size_t until, const NameOf& name_of)
      : device_(device), until_(until), name_of_(name_of) {}

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
    const auto [known, is_new] = courses_.try_emplace(name_of_(event.stack));
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
  const NameOf& name_of_;
  std::map<StackName, Course> courses_;
  std::unordered_map<uint64_t, Block> blocks_;
};

// `most_falls`: windows in which it may have less than before.
bool rises(const Watch::Course& course, uint64_t most_falls) {
  uint64_t falls = 0;
  for (size_t i = 1; i < kWindows; ++i) falls += course.least[i] <= course.least[i - 1] ? 1 : 0;
  return falls <= most_falls && course.least.back() > course.least.front();
}

bool begins_before_the_history(const HeldBlock& block) {
  return block.born == kBeforeHistory;
}

std::map<StackName, ReplacedGrowth> replaced_by(const NameOf& name_of, const DeviceHistory& device,
                                                const Moment& now, uint64_t most_falls) {
  std::map<StackName, ReplacedGrowth> found;
  Watch watch(device, now.event, name_of);
  const auto& courses = watch.run();
  const bool is_cut = std::ranges::any_of(now.blocks, begins_before_the_history);
  std::map<StackName, uint64_t> young, old;  // blocks
  for (const HeldBlock& block : now.blocks) {
    if (block.pending) continue;
    const StackName& name = name_of(block.stack);
    const auto course = courses.find(name);
    const bool is_young = course != courses.end() && !begins_before_the_history(block) &&
                          block.born >= watch.late(course->second);
    ++(is_young ? young : old)[name];
  }
  for (const auto& [name, blocks] : young) {
    const Watch::Course& course = courses.at(name);
    if (old.contains(name) || !watch.is_long_enough(course) || !rises(course, most_falls)) continue;
    uint64_t bytes = course.least.back() - course.least.front();
    const uint64_t steps = std::max<uint64_t>(course.allocations / blocks, 1), per_step = bytes / steps;
    // It was there when the history begins: what it held then had grown before.
    const bool is_older = is_cut && course.first == now.event / 4;
    if (is_older && bytes >= course.least.back() / kPartSeen) bytes = course.least.back();
    found[name] = {bytes, {steps, per_step, true}};
  }
  return found;
}

// What the places hold now that hold nothing old, and more than a little.
std::map<StackName, uint64_t> young_places(const Moment& now, StackNames* names) {
  constexpr uint64_t kMuch = 32;  // part of all
  std::map<StackName, uint64_t> young;
  uint64_t held = 0;
  std::set<StackName> old;
  for (const HeldBlock& block : now.blocks) {
    if (block.pending) continue;
    held += block.requested;
    const bool is_young = !begins_before_the_history(block) && block.born >= now.event / 16 * 13;
    if (is_young)
      young[names->of(block.stack)] += block.requested;
    else
      old.insert(names->of(block.stack));
  }
  std::erase_if(young,
                [&](const auto& place) { return old.contains(place.first) || place.second < held / kMuch; });
  return young;
}

// Lines that make blocks of the same sizes are told apart by chance: each has a part of all. By chance too,
// blocks of one window may all have gone to others.
std::map<StackName, ReplacedGrowth> replaced_together(const DeviceHistory& device, const Moment& now,
                                                      StackNames* names) {
  const std::map<StackName, uint64_t> young = young_places(now, names);
  if (young.size() < 2) return {};
  const StackName joined{"all that is young", ""};
  const auto name_of = [&](StackId stack) -> const StackName& {
    const StackName& name = names->of(stack);
    return young.contains(name) ? joined : name;
  };
  const auto together = replaced_by(name_of, device, now, 1);
  const auto grown = together.find(joined);
  if (grown == together.end()) return {};
  uint64_t held = 0;
  for (const auto& [name, bytes] : young) held += bytes;
  std::map<StackName, ReplacedGrowth> shares;
  for (const auto& [name, bytes] : young) {
    const double share = static_cast<double>(bytes) / static_cast<double>(std::max<uint64_t>(held, 1));
    const auto part = [&](uint64_t of) { return static_cast<uint64_t>(share * static_cast<double>(of)); };
    const Growth& growth = grown->second.growth;
    shares[name] = {part(grown->second.bytes), {growth.steps, part(growth.bytes_per_step), true}};
  }
  return shares;
}

}  // namespace

std::map<StackName, ReplacedGrowth> what_is_replaced(const DeviceHistory& device, const Moment& now,
                                                     bool is_sample, StackNames* names) {
  if (now.event < kFewestEvents) return {};
  const auto name_of = [&](StackId stack) -> const StackName& { return names->of(stack); };
  auto found = replaced_by(name_of, device, now, 0);
  if (is_sample) found.merge(replaced_together(device, now, names));
  return found;
}

}  // namespace spillway::tools
