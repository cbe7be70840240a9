#include "tools/spillway/snapshot/stacks.h"

#include <algorithm>
#include <functional>

namespace spillway::tools {
namespace {

using Id = Pickle::Id;

StackFrame frame_of(const Pickle& pickle, Id frame) {
  const auto text = [&](const char* key) {
    const auto value = pickle.find(frame, key);
    return value ? pickle.text(*value).value_or("") : std::string_view();
  };
  const auto line = pickle.find(frame, "line");
  return {text("name"), text("filename"), line ? pickle.integer(*line).value_or(0) : 0};
}

uint64_t hash_of(const std::vector<Id>& ids) {
  uint64_t hash = ids.size();
  for (const Id id : ids) hash = (hash ^ id) * 0x9e3779b97f4a7c15ull;
  return hash;
}

}  // namespace

StackId Stacks::of(const Pickle& pickle, std::optional<Id> frames, Id first) {
  if (!frames) return 0;
  const std::vector<Id>& ids = pickle.items(*frames);
  if (ids.empty()) return 0;
  const auto make = [&] {
    std::vector<StackFrame> made;
    made.reserve(ids.size());
    for (const Id id : ids) made.push_back(frame_of(pickle, id));
    return add(std::move(made));
  };
  if (std::ranges::any_of(ids, [first](Id id) { return id >= first; })) return make();
  std::vector<Known>& known = by_ids_[hash_of(ids)];
  const auto found = std::ranges::find(known, ids, &Known::frames);
  if (found != known.end()) return found->stack;
  return known.emplace_back(Known{ids, make()}).stack;
}

StackId Stacks::add(std::vector<StackFrame> frames) {
  size_t hash = frames.size();
  for (const StackFrame& frame : frames)
    for (const size_t part : {std::hash<std::string_view>()(frame.function),
                              std::hash<std::string_view>()(frame.file), static_cast<size_t>(frame.line)})
      hash = hash * 1099511628211u ^ part;
  for (const StackId same : by_content_[hash])
    if (out_.stacks[same] == frames) return same;
  out_.stacks.push_back(std::move(frames));
  const auto id = static_cast<StackId>(out_.stacks.size() - 1);
  by_content_[hash].push_back(id);
  return id;
}

}  // namespace spillway::tools
