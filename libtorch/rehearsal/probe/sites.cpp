#include "libtorch/rehearsal/probe/sites.h"

#include <torch/csrc/profiler/combined_traceback.h>

#include <algorithm>
#include <array>

#include "libtorch/work_label.h"

namespace spillway::rehearsal {
namespace {

using torch::CapturedTraceback;

// Sites beyond these are not told apart: a program that makes ever new stacks must not fill the host.
constexpr size_t kMostSites = 200000;

// The frames are private to CapturedTraceback, and its public way to read them (symbolize) takes the GIL,
// which must not be waited for under the allocator's lock. An explicit instantiation may name a private
// member.
template <typename Tag, typename Tag::Type Member>
struct Open {
  friend typename Tag::Type member(Tag) { return Member; }
};
struct PythonFrames {
  using Type = std::vector<CapturedTraceback::PyFrame> CapturedTraceback::*;
  friend Type member(PythonFrames);
};
template struct Open<PythonFrames, &CapturedTraceback::frames_>;

const std::vector<CapturedTraceback::PyFrame>* frames_of(const c10::GatheredContext* context) {
  const auto* stack = dynamic_cast<const CapturedTraceback*>(context);
  return stack == nullptr ? nullptr : &(stack->*member(PythonFrames()));
}

uint64_t mixed(uint64_t hash, uint64_t value) {
  hash ^= value + 0x9e3779b97f4a7c15u + (hash << 6) + (hash >> 2);
  return hash * 0xff51afd7ed558ccdu;
}

uint64_t hash_of(const std::vector<CapturedTraceback::PyFrame>& frames) {
  uint64_t hash = frames.size();
  for (const auto& frame : frames)
    hash = mixed(mixed(hash, reinterpret_cast<uint64_t>(frame.code)), static_cast<uint64_t>(frame.lasti));
  return hash;
}

bool same(const std::vector<CapturedTraceback::PyFrame>& a,
          const std::vector<CapturedTraceback::PyFrame>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i].code != b[i].code || a[i].lasti != b[i].lasti) return false;
  return true;
}

// A program's own history may gather C++ frames too.
bool is_python(const std::string& file) {
  const size_t dot = file.rfind('.');
  const std::string_view extension = dot == std::string::npos ? "" : std::string_view(file).substr(dot);
  constexpr std::array kNative = {".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp"};
  return file != "??" && !file.empty() && file.find(".so") == std::string::npos &&
         std::find(kNative.begin(), kNative.end(), extension) == kNative.end();
}

}  // namespace

std::shared_ptr<c10::GatheredContext> gather_stack() {
  return CapturedTraceback::gather(/*python=*/true, /*script=*/false, /*cpp=*/false);
}

Site Sites::add(uint64_t hash, std::shared_ptr<c10::GatheredContext> context, std::string label) {
  const auto site = static_cast<Site>(entries_.size());
  entries_.push_back({hash, std::move(context), {std::move(label), {}}});
  by_hash_[hash].push_back(site);
  return site;
}

Site Sites::of_label(std::string_view label) {
  const uint64_t hash = std::hash<std::string_view>()(label);
  for (const Site site : by_hash_[hash])
    if (entries_[site].context == nullptr && entries_[site].text.label == label) return site;
  return add(hash, nullptr, std::string(label));
}

Site Sites::of(const std::shared_ptr<c10::GatheredContext>& context) {
  const auto* frames = frames_of(context.get());
  if (frames == nullptr || frames->empty()) {
    if (const std::string work = libtorch::work_label(); !work.empty()) return of_label(work);
    return of_label(context == nullptr ? "stack not recorded" : "outside Python");
  }
  const uint64_t hash = hash_of(*frames);
  for (const Site site : by_hash_[hash])
    if (const auto* known = frames_of(entries_[site].context.get());
        known != nullptr && same(*known, *frames))
      return site;
  if (entries_.size() >= kMostSites) return of_label("further places");
  return add(hash, context, "");
}

Sites::Unnamed Sites::unnamed() const {
  Unnamed those;
  those.end = entries_.size();
  for (size_t i = symbolized_; i < those.end; ++i) {
    if (dynamic_cast<CapturedTraceback*>(entries_[i].context.get()) == nullptr) continue;
    those.stacks.push_back(entries_[i].context);
    those.sites.push_back(static_cast<Site>(i));
  }
  return those;
}

void Sites::name(const Unnamed& those, std::vector<std::vector<Frame>> frames) {
  for (size_t i = 0; i < those.sites.size(); ++i) entries_[those.sites[i]].text.frames = std::move(frames[i]);
  symbolized_ = std::max(symbolized_, those.end);
}

std::vector<std::vector<Frame>> frames_of(const Sites::Unnamed& those) {
  std::vector<CapturedTraceback*> stacks;
  for (const auto& stack : those.stacks) stacks.push_back(static_cast<CapturedTraceback*>(stack.get()));
  const torch::SymbolizedTracebacks result = torch::symbolize(stacks);
  std::vector<std::vector<Frame>> all(stacks.size());
  for (size_t i = 0; i < all.size(); ++i)
    for (const uint64_t index : result.tracebacks[i]) {
      const auto& frame = result.all_frames[index];
      if (is_python(frame.filename)) all[i].push_back({frame.funcname, frame.filename, frame.lineno});
    }
  return all;
}

}  // namespace spillway::rehearsal
