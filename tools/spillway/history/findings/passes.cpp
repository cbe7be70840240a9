#include "tools/spillway/history/findings/passes.h"

#include <algorithm>
#include <span>

#include "tools/spillway/history/names.h"
#include "tools/spillway/rehearse/judge/places.h"

namespace spillway::tools {
namespace {

using Path = std::vector<StackFrame>;  // outermost frame first

bool is_module_call(const StackFrame& frame) {
  return frame.function == "forward" ||
         (frame.function.ends_with("_call_impl") && frame.file.ends_with("torch/nn/modules/module.py"));
}

bool is_torchs(const StackFrame& frame) {
  return frame.file.find("/torch/") != frame.file.npos;
}

Path path_of(const std::vector<StackFrame>& stack) {
  Path path;
  for (const StackFrame& frame : stack)
    if (is_python(frame)) path.push_back(frame);
  std::ranges::reverse(path);
  return path;
}

// A function that was called from one place: what lies outside it, and the function itself.
class Loop {
 public:
  Loop(std::span<const StackFrame> path, size_t depth)
      : outside_(path.first(depth)), function_(path[depth]) {}

  // What a stack says of the loop: its line there, and whether it is inside a model's call.
  struct Sight {
    bool in_the_loop = false;
    int64_t line = 0;
    bool in_a_model = false;
  };
  Sight see(const Path& path) const {
    const size_t depth = outside_.size();
    if (path.size() <= depth || !std::equal(outside_.begin(), outside_.end(), path.begin()) ||
        path[depth].function != function_.function || path[depth].file != function_.file)
      return {};
    const auto inside = path.begin() + static_cast<ptrdiff_t>(depth) + 1;
    return {true, path[depth].line, std::any_of(inside, path.end(), is_module_call)};
  }

 private:
  const std::span<const StackFrame> outside_;
  const StackFrame& function_;
};

class Counter {
 public:
  void take(size_t event, const Loop::Sight& sight) {
    if (starts_.empty() || sight.line < line_) {
      starts_.push_back(event);
      with_a_model_.push_back(false);
    }
    line_ = sight.line;
    if (sight.in_a_model) with_a_model_.back() = true;
  }
  // The last pass may not have come as far as its model.
  bool is_of_steps() const {
    const auto calls = static_cast<size_t>(std::ranges::count(with_a_model_, true));
    return calls * 2 >= starts_.size();
  }
  std::vector<size_t> starts() && { return std::move(starts_); }

 private:
  std::vector<size_t> starts_;
  std::vector<bool> with_a_model_;
  int64_t line_ = 0;
};

std::string text_of(const StackFrame& frame) {
  return frame_text(
      {std::string(frame.function), std::string(frame.file), static_cast<uint64_t>(frame.line)});
}

// Of a loop around the request, in the events before it. A line that is only likely says nothing of the
// order.
Passes passes_of(const Loop& loop, const std::vector<Path>& paths, const DeviceHistory& device,
                 size_t failure) {
  std::vector<Loop::Sight> sights;
  Passes passes;
  for (const Path& path : paths) {
    sights.push_back(loop.see(path));
    passes.has.push_back(sights.back().in_a_model);
  }
  Counter counter;
  for (size_t i = 0; i < failure; ++i) {
    const HistoryEvent& event = device.events[i];
    if (event.action != Action::kAllocate || (!device.placed_by_size.empty() && device.placed_by_size[i]))
      continue;
    if (const Loop::Sight& sight = sights[event.stack]; sight.in_the_loop) counter.take(i, sight);
  }
  if (counter.is_of_steps()) passes.starts = std::move(counter).starts();
  return passes;
}

}  // namespace

Passes passes_before(const MemoryHistory& history, int device, size_t failure) {
  const DeviceHistory& told = history.devices.at(device);
  const Path request = path_of(history.stacks[told.events[failure].stack]);
  std::vector<Path> paths;
  paths.reserve(history.stacks.size());
  for (const auto& stack : history.stacks) paths.push_back(path_of(stack));
  Passes most;
  for (size_t depth = 0; depth < request.size() && !is_module_call(request[depth]); ++depth) {
    if (is_torchs(request[depth])) continue;
    Passes passes = passes_of(Loop(request, depth), paths, told, failure);
    passes.where = text_of(request[depth]);
    if (passes.are_enough()) return passes;
    if (passes.starts.size() > most.starts.size()) most = std::move(passes);
  }
  return most;
}

}  // namespace spillway::tools
