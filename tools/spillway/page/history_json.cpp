#include "tools/spillway/page/history_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "tools/spillway/history/lives.h"
#include "tools/spillway/history/moment.h"
#include "tools/spillway/history/names.h"
#include "tools/spillway/page/columns.h"

namespace spillway::tools {
namespace {

using Json = nlohmann::ordered_json;

// Marks on the time line: a damaged file may have any number.
constexpr size_t kMarksShown = 2000;
constexpr uint64_t kAlignment = 512;

// Texts, frames, stacks and places in the order in which they are first met.
class StackTable {
 public:
  explicit StackTable(const MemoryHistory& history) : history_(history), names_(history) {}

  uint64_t number_of(StackId stack) {
    const auto [known, is_new] = stacks_.try_emplace(stack, stacks_.size());
    if (is_new) add(stack);
    return known->second;
  }

  Json json() const {
    return {{"texts", texts_},          {"places", places_},          {"function", function_.base64()},
            {"file", file_.base64()},   {"line", line_.base64()},     {"native", native_.base64()},
            {"depth", depth_.base64()}, {"frames", frames_.base64()}, {"place", place_.base64()}};
  }

 private:
  void add(StackId stack) {
    const auto& frames = history_.stacks[stack];
    depth_.add(frames.size());
    for (const StackFrame& frame : frames) frames_.add(frame_number(frame));
    const StackName& name = names_.of(stack);
    const auto [place, is_new] = known_places_.try_emplace(name, known_places_.size());
    if (is_new) places_.push_back({{"where", name.where}, {"caller", name.caller}});
    place_.add(place->second);
  }

  uint64_t frame_number(const StackFrame& frame) {
    const uint64_t function = text_number(frame.function), file = text_number(frame.file);
    const uint64_t line = frame.line > 0 ? static_cast<uint64_t>(frame.line) : 0;
    const auto [known, is_new] =
        known_frames_.try_emplace(std::tuple(function, file, line), known_frames_.size());
    if (is_new) {
      function_.add(function), file_.add(file), line_.add(line);
      native_.add(is_python(frame) ? 0 : 1);
    }
    return known->second;
  }

  uint64_t text_number(std::string_view text) {
    const auto [known, is_new] = known_texts_.try_emplace(text, known_texts_.size());
    if (is_new) texts_.push_back(std::string(text));
    return known->second;
  }

  const MemoryHistory& history_;
  StackNames names_;
  std::unordered_map<StackId, uint64_t> stacks_;
  std::unordered_map<std::string_view, uint64_t> known_texts_;
  std::map<std::tuple<uint64_t, uint64_t, uint64_t>, uint64_t> known_frames_;
  std::map<StackName, uint64_t> known_places_;
  Json texts_ = Json::array(), places_ = Json::array();
  Column function_, file_, line_, native_, depth_, frames_, place_;
};

Json blocks_json(const Lives& lives, StackTable* stacks) {
  const bool aligned = std::all_of(lives.blocks.begin(), lives.blocks.end(),
                                   [](const BlockLife& block) { return block.address % kAlignment == 0; });
  const uint64_t unit = aligned ? kAlignment : 1;
  Column from, life, pending, bytes, extra, address, stack;
  for (const BlockLife& block : lives.blocks) {
    from.add_step_to(block.from);
    life.add(block.until - block.from);
    pending.add(block.until - block.pending);
    bytes.add(block.requested);
    extra.add(block.held - std::min(block.held, block.requested));
    address.add_step_to(block.address / unit);
    stack.add(stacks->number_of(block.stack));
  }
  return {{"count", lives.blocks.size()}, {"from", from.base64()},       {"life", life.base64()},
          {"pending", pending.base64()},  {"bytes", bytes.base64()},     {"extra", extra.base64()},
          {"address_unit", unit},         {"address", address.base64()}, {"stack", stack.base64()}};
}

Json segments_json(const Lives& lives) {
  Column from, until, address, size, owner;
  Json owners = Json::array();
  std::map<PoolAndStream, uint64_t> known;
  for (const SegmentLife& segment : lives.segments) {
    const auto [place, is_new] = known.try_emplace({segment.pool, segment.stream}, known.size());
    if (is_new)
      owners.push_back({{"pool", {segment.pool.first, segment.pool.second}}, {"stream", segment.stream}});
    from.add(segment.from), until.add(segment.until), address.add(segment.address), size.add(segment.size);
    owner.add(place->second);
  }
  return {{"count", lives.segments.size()},
          {"from", from.base64()},
          {"until", until.base64()},
          {"address", address.base64()},
          {"size", size.base64()},
          {"owner", owner.base64()},
          {"owners", owners}};
}

Json failures_json(const DeviceHistory& device, StackTable* stacks) {
  Json failures = Json::array();
  for (size_t i = device.events.size(); i > 0 && failures.size() < kMarksShown; --i) {
    const HistoryEvent& event = device.events[i - 1];
    if (event.action != Action::kOutOfMemory) continue;
    failures.push_back({{"moment", i - 1},
                        {"bytes", event.size},
                        {"free_bytes", event.address},
                        {"stream", event.stream},
                        {"pool", {event.pool.first, event.pool.second}},
                        {"stack", stacks->number_of(event.stack)}});
  }
  return failures;  // the last one first
}

Json steps_json(const DeviceHistory& device) {
  Json steps = Json::array();
  for (const size_t step : told_steps(device))
    if (step > 0 && steps.size() < kMarksShown) steps.push_back(step);
  if (!told_steps(device).empty()) return steps;
  size_t event = 0;
  for (const uint64_t time : device.optimizer_steps) {
    while (event < device.events.size() && device.events[event].microseconds < time) ++event;
    if (event < device.events.size() && steps.size() < kMarksShown) steps.push_back(event);
  }
  return steps;
}

}  // namespace

Json history_json(const MemoryHistory& history, int number) {
  const DeviceHistory& device = history.devices.at(number);
  const Lives lives = lives_of(device);
  StackTable stacks(history);
  Column times;
  for (const HistoryEvent& event : device.events) times.add_step_to(event.microseconds);
  const Json failures = failures_json(device, &stacks);
  const size_t last = failures.empty() ? device.events.size() : failures[0]["moment"].get<size_t>();
  const bool expandable = std::any_of(device.segments.begin(), device.segments.end(),
                                      [](const HistorySegment& segment) { return segment.expandable; });
  Json json = {{"device", number},        {"moments", lives.moments},
               {"times", times.base64()}, {"peak", std::min(peak_of(device), last)},
               {"failures", failures},    {"steps", steps_json(device)},
               {"expandable", expandable}};
  json["blocks"] = blocks_json(lives, &stacks);
  json["segments"] = segments_json(lives);
  json["stacks"] = stacks.json();
  return json;
}

}  // namespace spillway::tools
