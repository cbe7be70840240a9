#include "tools/spillway/perfetto/write.h"

#include <algorithm>
#include <array>

#include "tools/spillway/history/findings/findings.h"
#include "tools/spillway/history/lives.h"
#include "tools/spillway/history/names.h"
#include "tools/spillway/perfetto/lanes.h"
#include "tools/spillway/perfetto/levels.h"
#include "tools/spillway/perfetto/time_axis.h"
#include "tools/spillway/perfetto/trace_writer.h"
#include "tools/spillway/units.h"

namespace spillway::tools {
namespace {

using Track = PerfettoWriter::Track;
using Notes = PerfettoWriter::Notes;

constexpr size_t kMostPoints = 50'000;
constexpr size_t kMostBlocks = 20'000;
constexpr size_t kMostRows = 256;
constexpr size_t kMostSteps = 20'000;
constexpr size_t kMostFailures = 2'000;

void add_text(const char* name, const std::string& text, Notes* notes) {
  if (!text.empty()) notes->emplace_back(name, text);
}

// The history of one device.
class DeviceWriter {
 public:
  DeviceWriter(const MemoryHistory& history, int number, const Analysis* ladder, PerfettoWriter* out)
      : history_(history),
        number_(number),
        device_(history.devices.at(number)),
        ladder_(ladder),
        names_(history),
        lives_(lives_of(device_)),
        axis_(device_),
        out_(*out),
        track_(out->add_track("GPU " + std::to_string(number))) {
    if (!axis_.has_clock() && !device_.events.empty())
      out_.note(track_, axis_.of(0), "the file has no clock: an event is a microsecond here");
    if (!history.incomplete.empty())
      out_.note(track_, axis_.of(0), "NOT WHOLE", {{"why", history.incomplete}});
  }

  void run(PerfettoTrace* counts) {
    find_failures();
    write_counters();
    write_steps();
    write_failures();
    if (ladder_ != nullptr) write_ladder();
    counts->blocks += lives_.blocks.size();
    counts->blocks_drawn += write_blocks();
  }

 private:
  void find_failures() {
    const auto& events = device_.events;
    for (size_t i = events.size(); i > 0 && failures_.size() < kMostFailures; --i)
      if (events[i - 1].action == Action::kOutOfMemory) failures_.push_back(i - 1);
    std::reverse(failures_.begin(), failures_.end());
  }

  void write_counters() {
    const std::vector<Levels> levels = levels_of(lives_);
    std::array<Track, kLevels> tracks{};
    for (size_t level = 0; level < kLevels; ++level)
      tracks[level] = out_.add_counter_of_bytes(kLevelNames[level], track_);
    const Levels* shown = nullptr;
    for (const size_t moment : points_of(levels, kMostPoints, failures_)) {
      for (size_t level = 0; level < kLevels; ++level)
        if (shown == nullptr || levels[moment][level] != (*shown)[level])
          out_.count(tracks[level], axis_.of(moment), levels[moment][level]);
      shown = &levels[moment];
    }
  }

  void write_steps() {
    const std::vector<size_t> starts = steps_of(device_, device_.events.size());
    if (starts.empty()) return;
    const Track track = out_.add_track("steps", track_);
    for (size_t i = 0; i < std::min(starts.size(), kMostSteps); ++i) {
      out_.begin(track, axis_.of(starts[i]), "step " + std::to_string(i + 1));
      out_.end(track, i + 1 < starts.size() ? axis_.of(starts[i + 1]) : axis_.end());
    }
  }

  void write_failures() {
    if (failures_.empty()) return;
    const Track track = out_.add_track("failures", track_);
    for (const size_t index : failures_) {
      const HistoryEvent& event = device_.events[index];
      const StackName& name = names_.of(event.stack);
      Notes notes = {{"asked_bytes", event.size}, {"stream", event.stream}, {"where", name.where}};
      if (!history_.requests_only) notes.emplace_back("free_bytes", event.address);
      add_text("caller", name.caller, &notes);
      out_.note(track, axis_.of(index + 1), "out of memory: " + size_text(event.size), notes);
    }
  }

  // An incident begins at the event of its failed request. Where these do not belong together, by its clock.
  std::vector<std::pair<uint64_t, const Incident*>> incidents() const {
    std::vector<std::pair<uint64_t, const Incident*>> incidents;
    for (const Incident& incident : ladder_->incidents)
      if (incident.device == number_) incidents.emplace_back(incident.clock_ns, &incident);
    std::vector<size_t> requests;
    for (size_t i = 0; i < device_.events.size(); ++i)
      if (device_.events[i].action == Action::kOutOfMemory || device_.events[i].action == Action::kOther)
        requests.push_back(i);
    if (requests.size() == incidents.size())
      for (size_t i = 0; i < requests.size(); ++i) incidents[i].first = axis_.of(requests[i] + 1);
    std::stable_sort(incidents.begin(), incidents.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    return incidents;
  }

  void write_ladder() {
    Lanes lanes(kMostRows);
    std::vector<Track> tracks;
    for (const auto& [begin, incident] : incidents()) {
      const auto row = lanes.place(begin, end_of(begin, incident->microseconds));
      if (!row) continue;
      if (*row == tracks.size()) tracks.push_back(out_.add_track("ladder", track_));
      write_incident(*incident, begin, tracks[*row]);
    }
  }

  static uint64_t end_of(uint64_t begin, uint64_t microseconds) {
    const uint64_t most = (UINT64_MAX - begin) / 1000;
    return begin + std::min(microseconds, most) * 1000;
  }

  void write_incident(const Incident& incident, uint64_t begin, Track track) {
    const char* outcome = incident.outcome ? outcome_name(*incident.outcome) : "undecided";
    Notes notes = {{"asked_bytes", incident.requested_bytes},
                   {"short_bytes", incident.short_bytes},
                   {"gained_bytes", incident.gained_bytes},
                   {"outcome", std::string(outcome)}};
    add_text("phase", incident.phase, &notes);
    add_text("library", incident.library, &notes);
    if (incident.step) notes.emplace_back("step", incident.step->step);
    if (incident.asker) add_text("where", incident.asker->where, &notes);
    for (const Refusal& refusal : incident.refusals)
      notes.emplace_back("refused", refusal.strategy + ": " + refusal.why);
    const uint64_t end = end_of(begin, incident.microseconds);
    out_.begin(track, begin,
               "incident " + std::to_string(incident.number) + ": " + size_text(incident.requested_bytes) +
                   ", " + outcome,
               notes);
    uint64_t at = begin;
    for (const LadderTry& tried : incident.tries) {
      Notes of_it = {{"offered_bytes", tried.offered_bytes}, {"gained_bytes", tried.measured_bytes}};
      if (tried.guarantee) of_it.emplace_back("guarantee", std::string(guarantee_name(*tried.guarantee)));
      out_.begin(track, at, tried.strategy, of_it);
      at = std::min(end_of(at, tried.microseconds), end);
      out_.end(track, at);
    }
    out_.end(track, end);
  }

  // The number of those that are drawn.
  size_t write_blocks() {
    std::vector<const BlockLife*> largest;
    largest.reserve(lives_.blocks.size());
    for (const BlockLife& block : lives_.blocks) largest.push_back(&block);
    std::stable_sort(largest.begin(), largest.end(),
                     [](const BlockLife* a, const BlockLife* b) { return a->held > b->held; });
    largest.resize(std::min(largest.size(), kMostBlocks));
    std::vector<std::vector<const BlockLife*>> rows;
    Lanes lanes(kMostRows);
    size_t drawn = 0;
    for (const BlockLife* block : largest) {
      const auto row = lanes.place(block->from, block->until);
      if (!row) continue;
      rows.resize(std::max(rows.size(), *row + 1));
      rows[*row].push_back(block);
      ++drawn;
    }
    if (rows.empty()) return 0;
    const Track parent = out_.add_track(
        "blocks: " + std::to_string(drawn) + " of " + std::to_string(lives_.blocks.size()) + ", the largest",
        track_);
    for (auto& row : rows) {
      const Track track = out_.add_track("blocks", parent);
      std::sort(row.begin(), row.end(),
                [](const BlockLife* a, const BlockLife* b) { return a->from < b->from; });
      for (const BlockLife* block : row) write_block(*block, track);
    }
    return drawn;
  }

  void write_block(const BlockLife& block, Track track) {
    const StackName& name = names_.of(block.stack);
    Notes notes = {
        {"bytes", block.requested}, {"held_bytes", block.held}, {"address", address_text(block.address)}};
    add_text("caller", name.caller, &notes);
    if (block.from == 0) notes.emplace_back("allocated", "before the history");
    if (block.until == lives_.moments) notes.emplace_back("freed", "not in the history");
    out_.begin(track, axis_.of(block.from), name.where, notes);
    out_.end(track, block.until == lives_.moments ? axis_.end() : axis_.of(block.until));
  }

  const MemoryHistory& history_;
  const int number_;
  const DeviceHistory& device_;
  const Analysis* const ladder_;
  StackNames names_;
  const Lives lives_;
  const TimeAxis axis_;
  PerfettoWriter& out_;
  const Track track_;
  std::vector<size_t> failures_;  // their events, in order
};

}  // namespace

PerfettoTrace perfetto_of(const MemoryHistory& history, const Analysis* ladder) {
  PerfettoTrace trace;
  PerfettoWriter out;
  for (const auto& [number, device] : history.devices)
    DeviceWriter(history, number, ladder, &out).run(&trace);
  trace.bytes = std::move(out).finish();
  return trace;
}

}  // namespace spillway::tools
