#include "libtorch/rehearsal/result.h"

#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "base/mutex.h"
#include "base/output_file.h"
#include "libtorch/rehearsal/history.h"
#include "libtorch/rehearsal/probe/stream.h"
#include "libtorch/rehearsal/settings.h"
#include "libtorch/rehearsal/state.h"

namespace spillway::rehearsal {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostHoldings = 500;  // of one composition; the rest is summed up
constexpr int kResultVersion = 1;

Json command_line() {
  Json words = Json::array();
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

Json from_environment(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? Json(nullptr) : Json(std::atoll(text));
}

std::string hex(uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof text, "%016" PRIx64, value);
  return text;
}

Json describe(const std::vector<Holding>& held, std::set<Site>* named) {
  Json list = Json::array();
  uint64_t rest_bytes = 0, rest_blocks = 0;
  for (const Holding& one : held) {
    if (list.size() >= kMostHoldings) {
      rest_bytes += one.bytes;
      rest_blocks += one.blocks;
      continue;
    }
    named->insert(one.site);
    list.push_back({{"site", one.site}, {"bytes", one.bytes}, {"blocks", one.blocks}});
  }
  if (rest_bytes > 0) list.push_back({{"site", nullptr}, {"bytes", rest_bytes}, {"blocks", rest_blocks}});
  return list;
}

Json describe(const Timeline& timeline) {
  Json list = Json::array();
  for (const Sample& sample : timeline.samples())
    list.push_back({sample.last_event, sample.allocated, sample.reserved});
  return list;
}

Json describe(const std::vector<Step>& steps) {
  Json list = Json::array();
  for (const Step& step : steps) list.push_back({step.last_event, step.allocated, step.reserved});
  return list;
}

Json describe(const std::array<uint64_t, kKinds>& bytes) {
  return {{"parameters", bytes[static_cast<size_t>(Kind::kParameter)]},
          {"gradients", bytes[static_cast<size_t>(Kind::kGradient)]},
          {"optimizer_state", bytes[static_cast<size_t>(Kind::kOptimizerState)]}};
}

Json describe(int device, const Ledger& ledger, std::set<Site>* named) {
  return {{"device", device},
          {"events", ledger.events()},
          {"stream_hash", hex(ledger.stream_hash())},
          {"segments_freed", ledger.segments_freed()},
          {"retries", ledger.retries()},
          {"failures", ledger.failures()},
          {"allocated_bytes", ledger.levels().allocated},
          {"reserved_bytes", ledger.levels().reserved},
          {"peak_allocated_bytes", ledger.peak_allocated()},
          {"peak_reserved_bytes", ledger.peak_reserved()},
          {"peak_event", ledger.peak_event()},
          {"peak_step", ledger.peak_step()},
          {"held_at_peak", describe(ledger.held_at_peak(), named)},
          {"kinds_at_peak", describe(ledger.bytes_by_kind_at_peak())},
          {"timeline", describe(ledger.timeline())},
          {"steps", describe(ledger.steps())}};
}

Json describe(const Failure& failure, std::set<Site>* named) {
  named->insert(failure.site);
  return {{"device", failure.device},
          {"requested_bytes", failure.requested},
          {"allocated_bytes", failure.allocated},
          {"reserved_bytes", failure.reserved},
          {"device_free_bytes", failure.device_free},
          {"limit_bytes", failure.limit},
          {"event", failure.event},
          {"step", failure.step},
          {"site", failure.site},
          {"held", describe(failure.held, named)}};
}

Json describe(const SiteText& text) {
  Json frames = Json::array();
  for (const Frame& frame : text.frames)
    frames.push_back({{"function", frame.function}, {"file", frame.file}, {"line", frame.line}});
  return {{"label", text.label}, {"frames", frames}};
}

const char* name_of(ReadKind kind) {
  switch (kind) {
    case ReadKind::kShape:
      return "shape";
    case ReadKind::kValue:
      return "value";
    case ReadKind::kCopy:
      return "copy";
    case ReadKind::kBulk:
      return "bulk";
    case ReadKind::kNumber:
      return "number";
    case ReadKind::kBranch:
      return "branch";
  }
  return "";
}

Json describe(const State& state) SPILLWAY_REQUIRES(state.mutex) {
  std::set<Site> named;
  Json devices = Json::array(), failures = Json::array(), reads = Json::array(), sites = Json::object();
  for (size_t i = 0; i < state.ledgers.size(); ++i)
    devices.push_back(describe(static_cast<int>(i), state.ledgers[i], &named));
  for (const Failure& failure : state.failures) failures.push_back(describe(failure, &named));
  for (const auto& [key, read] : state.reads) {
    named.insert(key.first);
    reads.push_back(
        {{"site", key.first}, {"kind", name_of(key.second)}, {"count", read.count}, {"bytes", read.bytes}});
  }
  for (const Site site : named) sites[std::to_string(site)] = describe(state.sites.text(site));
  return {{"spillway_rehearsal", kResultVersion},
          {"pid", ::getpid()},
          {"parent", ::getppid()},
          {"rank", from_environment("RANK")},
          {"local_rank", from_environment("LOCAL_RANK")},
          {"world_size", from_environment("WORLD_SIZE")},
          {"command", command_line()},
          {"complete", state.complete},
          {"ended_by_steps", state.ended_by_steps},
          {"problem", state.problem},
          {"stream_error", stream_error()},
          {"allocator", state.allocator},
          {"architectures", state.architectures},
          {"expandable_segments", state.expandable_segments},
          {"splits_are_limited", state.splits_are_limited},
          {"python", state.has_python},
          {"optimizer_steps", state.steps},
          {"checkpointed_models", state.checkpointed_models},
          {"failure_count", state.failure_count},
          {"failures", failures},
          {"uncaught",
           {{"type", state.uncaught.type},
            {"message", state.uncaught.message},
            {"out_of_memory", state.uncaught.out_of_memory},
            {"names_memory", state.uncaught.names_memory}}},
          {"devices", devices},
          {"reads", reads},
          {"sites", sites}};
}

void complain(const std::string& path) {
  static std::once_flag once;
  std::call_once(once, [&path] {
    std::fprintf(stderr, "spillway rehearsal: the result cannot be written to %s\n", path.c_str());
  });
}

// Text of the program's, such as file names and messages, need not be UTF-8.
void replace_file(const std::string& path, const Json& json) {
  const std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  if (write_text(path, text) != 0) complain(path);
}

}  // namespace

void write_result() {
  static Mutex<LockOrder::kRehearsalResult> one_writer;
  const std::string& path = settings().result_path;
  State& state = rehearsal::state();
  if (path.empty() || state.forked) return;
  const Locked writing(one_writer);
  state.dirty = false;
  std::vector<Levels> levels;
  size_t devices = 0;
  {
    const Locked lock(state.mutex);
    if (state.problem.empty()) devices = state.ledgers.size();
  }
  levels.reserve(devices);
  for (size_t i = 0; i < devices; ++i) levels.push_back(levels_of(static_cast<int>(i)));
  Json json;
  {
    const Locked lock(state.mutex);
    for (size_t i = 0; i < devices; ++i) state.ledgers[i].observe(levels[i]);
    flush_stream();
    flush_history(state.sites);
    json = describe(state);
  }
  replace_file(path, json);
}

}  // namespace spillway::rehearsal
