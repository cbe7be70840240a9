#include "tools/spillway/report/trace/trace_history.h"

#include <algorithm>
#include <charconv>
#include <unordered_map>

#include "tools/spillway/report/trace/trace_rebuilder.h"
#include "tools/spillway/units.h"

namespace spillway::tools {
namespace {

using trace::Kind;
using trace::Record;

bool is_of_memory(Kind kind) {
  return kind == Kind::kAllocate || kind == Kind::kFree || kind == Kind::kFreePending ||
         kind == Kind::kSegmentReserve || kind == Kind::kPageMap || kind == Kind::kPageUnmap ||
         kind == Kind::kOom || kind == Kind::kLadderOutcome;
}

// Stacks of the side table, each once.
std::unordered_map<uint64_t, StackId> read_stacks(const trace::Contents& contents, MemoryHistory* out) {
  const auto names = std::make_shared<const std::map<uint64_t, std::string>>(contents.names);
  out->texts = names;
  std::unordered_map<uint64_t, StackId> stacks;
  for (const Record& record : contents.records) {
    const bool has_stack = record.kind == Kind::kSite || record.kind == Kind::kOomSite;
    if (!has_stack || record.detail == 0 || stacks.contains(record.detail)) continue;
    const auto text = names->find(record.detail);
    if (text == names->end()) continue;
    stacks[record.detail] = static_cast<StackId>(out->stacks.size());
    out->stacks.push_back(frames_of(text->second));
  }
  return stacks;
}

void say_what_is_missing(const trace::Contents& contents, uint64_t lost_frees, MemoryHistory* out) {
  const auto say = [&](const std::string& text) {
    if (!out->incomplete.empty()) out->incomplete += "; ";
    out->incomplete += text;
  };
  out->incomplete = contents.incomplete;
  const uint64_t lost = contents.overwritten - std::min(contents.overwritten, contents.overwritten_rare);
  if (lost + contents.dropped + contents.torn > 0)
    say("the trace holds the newest events, " +
        count_text(lost + contents.dropped + contents.torn, "is", "are") + " lost");
  for (const auto& [number, device] : out->devices)
    if (device.unknown_bytes > 0)
      say(size_text(device.unknown_bytes) + " in use on device " + std::to_string(number) +
          " were allocated before them");
  if (lost_frees > 0) say(count_text(lost_frees, "free is", "frees are") + " known by what came after");
}

}  // namespace

std::vector<StackFrame> frames_of(std::string_view text) {
  std::vector<StackFrame> frames;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.empty()) continue;
    StackFrame frame{line, {}, 0};
    const size_t space = line.rfind(' '), colon = line.substr(0, space).rfind(':');
    if (space != line.npos && colon != line.npos) {
      const auto read = std::from_chars(line.data() + colon + 1, line.data() + space, frame.line);
      if (read.ec == std::errc() && read.ptr == line.data() + space)
        frame = {line.substr(space + 1), line.substr(0, colon), frame.line};
    }
    frames.push_back(frame);
  }
  return frames;
}

namespace {

// `to_give_back`: the records, where their memory may go as they are read; null otherwise.
MemoryHistory build_history(const trace::Contents& contents, trace::RecordList* to_give_back) {
  MemoryHistory out;
  out.settings = contents.settings;
  out.of_spillway = true;
  const auto stacks_taken = contents.settings.find("stacks");
  const TraceRebuilder::Lacks lacks{
      .places = stacks_taken == contents.settings.end() || stacks_taken->second != "all",
      .oldest = contents.overwritten > contents.overwritten_rare};
  if (lacks.places)
    out.without_stack = "allocations whose place was not taken (SPILLWAY_STACKS=all takes every one)";
  const TraceFailures failures(contents);
  auto stacks = read_stacks(contents, &out);
  std::map<int, TraceRebuilder> devices;
  for (const Record& record : contents.records)
    if (is_of_memory(record.kind))
      devices.try_emplace(record.device, failures, &stacks, lacks).first->second.learn(record);
  for (const Record& record : contents.records)
    for (auto& [number, device] : devices)
      if (record.kind == Kind::kStepBegin || record.device == number) device.learn_time(record);
  for (auto& [number, device] : devices) device.expect_what_was_learnt();
  for (size_t i = 0; i < contents.records.size(); ++i) {
    const Record& record = contents.records[i];
    if (record.kind == Kind::kStepBegin) {
      for (auto& [number, device] : devices) device.begin_step();
    } else if (record.kind == Kind::kOptimizerStep) {
      for (auto& [number, device] : devices) device.begin_optimizer_step();
    } else if (const auto device = devices.find(record.device); device != devices.end()) {
      device->second.take(record);
    }
    if (to_give_back != nullptr) to_give_back->give_back_before(i);
  }
  uint64_t lost_frees = 0;
  for (auto& [number, device] : devices) {
    out.devices[number] = device.finish();
    out.passed_over += device.passed_over();
    lost_frees += device.lost_frees();
  }
  say_what_is_missing(contents, lost_frees, &out);
  return out;
}

}  // namespace

MemoryHistory history_of(const trace::Contents& contents) {
  return build_history(contents, nullptr);
}

MemoryHistory take_history(trace::Contents* contents) {
  MemoryHistory history = build_history(*contents, &contents->records);
  contents->records.clear();
  return history;
}

}  // namespace spillway::tools
