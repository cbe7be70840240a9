#include "tools/spillway/rehearse/judge/places.h"

#include <algorithm>

namespace spillway::tools {
namespace {

// The probe's own part in Python, which stands in for some of PyTorch's functions.
bool is_probe(const std::string& file) {
  return file.starts_with("spillway/_");
}

bool is_installed(const std::string& file) {
  return is_probe(file) || file.find("/site-packages/") != std::string::npos ||
         file.find("/dist-packages/") != std::string::npos ||
         file.find("/lib/python3") != std::string::npos || file.starts_with("<frozen ");
}

bool is_torch(const std::string& file) {
  return is_probe(file) || file.find("/site-packages/torch/") != std::string::npos ||
         file.find("/dist-packages/torch/") != std::string::npos;
}

// From the package on, or the last folder and the file.
std::string short_path(const std::string& file) {
  for (const char* root : {"/site-packages/", "/dist-packages/"})
    if (const size_t at = file.rfind(root); at != std::string::npos)
      return file.substr(at + std::string(root).size());
  const size_t name = file.rfind('/');
  return name == std::string::npos ? file : file.substr(name + 1);
}

// A file may name anything, and a name with a line end would look like a line of the report.
std::string one_line(std::string text) {
  std::ranges::replace_if(text, [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return text;
}

template <typename Wanted>
const Frame* innermost(const Place& place, Wanted wanted) {
  const auto found = std::find_if(place.frames.begin(), place.frames.end(), wanted);
  return found == place.frames.end() ? nullptr : &*found;
}

bool is_own(const Place& place, const std::string& where) {
  const Frame* frame = innermost(place, [](const Frame& f) { return !is_installed(f.file); });
  return frame != nullptr && frame_text(*frame) == where;
}

}  // namespace

std::string frame_text(const Frame& frame) {
  return one_line(short_path(frame.file) + ":" + std::to_string(frame.line) + " " + frame.function);
}

std::string where_of(const Place& place) {
  if (place.frames.empty()) return place.label.empty() ? "a place not named in time" : one_line(place.label);
  const Frame* frame = innermost(place, [](const Frame& f) { return !is_torch(f.file); });
  const Frame& inner = place.frames.front();
  // An optimizer's or a loss's own line says more than the loop that calls it.
  const bool torch_says_more = frame == nullptr || inner.file.find("/torch/optim/") != std::string::npos;
  return frame_text(torch_says_more ? inner : *frame);
}

std::string caller_of(const Place& place) {
  const std::string where = where_of(place);
  for (const Frame& frame : place.frames) {
    if (is_installed(frame.file)) continue;
    const std::string text = frame_text(frame);
    if (text == where) continue;
    // The program's first line leads everywhere.
    return frame.function == "<module>" && is_own(place, where) ? "" : text;
  }
  return "";
}

std::vector<PlaceShare> share_by_place(const std::vector<Held>& held,
                                       const std::map<uint32_t, Place>& places) {
  std::map<std::pair<std::string, std::string>, PlaceShare> groups;
  for (const Held& one : held) {
    const auto found = one.place ? places.find(*one.place) : places.end();
    const std::string where = found == places.end() ? "small places" : where_of(found->second);
    const std::string caller = found == places.end() ? "" : caller_of(found->second);
    PlaceShare& group = groups[{where, caller}];
    group.where = where;
    group.caller = caller;
    group.bytes += one.bytes;
    group.blocks += one.blocks;
  }
  std::vector<PlaceShare> shares;
  shares.reserve(groups.size());
  for (auto& [key, share] : groups) shares.push_back(std::move(share));
  std::stable_sort(shares.begin(), shares.end(),
                   [](const PlaceShare& a, const PlaceShare& b) { return a.bytes > b.bytes; });
  return shares;
}

std::string place_text(const Place& place) {
  const std::string where = where_of(place), caller = caller_of(place);
  return where + (caller.empty() ? "" : "  from " + caller);
}

}  // namespace spillway::tools
