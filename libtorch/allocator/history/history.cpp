#include "libtorch/allocator/history/history.h"

#include <iterator>
#include <stack>

namespace spillway::libtorch {
namespace {

using Action = native::TraceEntry::Action;

// PyTorch's own names; one that it does not know is passed over, as natively.
std::unordered_set<int> actions_of(const std::vector<std::string>& names) {
  static const std::pair<const char*, Action> kNames[] = {
      {"alloc", Action::ALLOC},
      {"free_requested", Action::FREE_REQUESTED},
      {"free_completed", Action::FREE_COMPLETED},
      {"segment_alloc", Action::SEGMENT_ALLOC},
      {"segment_free", Action::SEGMENT_FREE},
      {"segment_map", Action::SEGMENT_MAP},
      {"segment_unmap", Action::SEGMENT_UNMAP},
      {"oom", Action::OOM},
      {"snapshot", Action::SNAPSHOT},
  };
  std::unordered_set<int> actions;
  for (const auto& [name, action] : kNames)
    if (std::find(names.begin(), names.end(), name) != names.end()) actions.insert(action);
  if (const auto annotated = annotation<Action>();
      annotated && std::find(names.begin(), names.end(), "annotate") != names.end())
    actions.insert(*annotated);
  return actions;
}

std::stack<std::string>& compile_contexts() {
  thread_local std::stack<std::string> contexts;
  return contexts;
}

}  // namespace

void History::set(const Settings& settings) {
  TORCH_CHECK(settings.when == native::RecordContext::NEVER || settings.recorder != nullptr,
              "recordHistory: stacks were asked for and nothing was given that gathers them");
  const Locked lock(mutex_);
  skipped_ = actions_of(settings.skipped);
  most_entries_ = settings.most_entries;
  annotations_.keep(most_entries_);
  for (auto& [device, ring] : traces_) ring.keep(most_entries_);
  if (!settings.enabled || settings.clear) {
    annotations_.clear();
    for (auto& [device, ring] : traces_) ring.clear();
  }
  // The recorder before the level that makes it be called.
  if (settings.enabled) recorder_.store(settings.recorder);
  when_.store(settings.enabled ? settings.when : native::RecordContext::NEVER);
  enabled_.store(settings.enabled);
}

Context History::gather(native::RecordContext level) const {
  return when_.load() < level ? nullptr : recorder_.load()();
}

void History::add(const native::TraceEntry& entry) {
  const Locked lock(mutex_);
  if (!enabled() || skipped_.count(entry.action_) != 0) return;
  const auto [place, fresh] = traces_.try_emplace(entry.device_);
  if (fresh) place->second.keep(most_entries_);
  place->second.add(entry);
}

void History::annotate(c10::DeviceIndex device,
                       const std::vector<std::pair<std::string, std::string>>& metadata) {
  AnnotationEntry entry(device, c10::getApproximateTime());
  for (const auto& [name, value] : metadata) entry.recordUserMetadata(name, value);
  const Locked lock(mutex_);
  annotations_.add(std::move(entry));
}

void History::remember_block(uint64_t address, Context context) {
  if (context == nullptr) return;
  const Locked lock(mutex_);
  blocks_[address] = std::move(context);
}

Context History::block_context(uint64_t address) const {
  const Locked lock(mutex_);
  const auto found = blocks_.find(address);
  return found == blocks_.end() ? nullptr : found->second;
}

void History::forget_block(uint64_t address) {
  const Locked lock(mutex_);
  blocks_.erase(address);
}

void History::remember_pages(uint64_t address, uint64_t bytes, Context context) {
  if (context == nullptr) return;
  const Locked lock(mutex_);
  pages_[address] = {address + bytes, std::move(context)};
}

Context History::pages_context(uint64_t address) const {
  const Locked lock(mutex_);
  const auto after = pages_.upper_bound(address);
  if (after == pages_.begin()) return nullptr;
  const Pages& pages = std::prev(after)->second;
  return pages.end > address ? pages.context : nullptr;
}

void History::forget_pages(uint64_t address, uint64_t bytes) {
  const uint64_t end = address + bytes;
  const Locked lock(mutex_);
  auto it = pages_.upper_bound(address);
  if (it != pages_.begin()) --it;
  while (it != pages_.end() && it->first < end) {
    const uint64_t first = it->first;
    const Pages pages = it->second;
    if (pages.end <= address) {
      ++it;
      continue;
    }
    it = pages_.erase(it);
    if (first < address) pages_[first] = {address, pages.context};
    if (pages.end > end) pages_[end] = pages;
  }
}

bool History::remembers() const {
  const Locked lock(mutex_);
  return !blocks_.empty() || !pages_.empty();
}

History::Clock History::microseconds() const {
  const auto nanoseconds = clock_.makeConverter();
  return [nanoseconds](c10::approx_time_t time) { return nanoseconds(time) / 1000; };
}

std::vector<native::TraceEntry> History::trace(c10::DeviceIndex device) const {
  std::vector<native::TraceEntry> entries;
  {
    const Locked lock(mutex_);
    const auto found = traces_.find(device);
    if (found != traces_.end()) entries = found->second.copy();
  }
  const Clock clock = microseconds();
  for (native::TraceEntry& entry : entries) entry.time_.t_ = clock(entry.time_.approx_t_);
  return entries;
}

std::vector<AnnotationEntry> History::annotations() const {
  std::vector<AnnotationEntry> entries;
  {
    const Locked lock(mutex_);
    entries = annotations_.copy();
  }
  const Clock clock = microseconds();
  for (auto& entry : entries) entry.time_.t_ = clock(entry.time_.approx_t_);
  return entries;
}

void History::push_compile_context(std::string context) {
  compile_contexts().push(std::move(context));
}

void History::pop_compile_context() {
  if (!compile_contexts().empty()) compile_contexts().pop();
}

std::string History::compile_context() {
  return compile_contexts().empty() ? "N/A" : compile_contexts().top();
}

std::string& History::user_metadata() {
  thread_local std::string metadata;
  return metadata;
}

}  // namespace spillway::libtorch
