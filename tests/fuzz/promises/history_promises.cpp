#include "tests/fuzz/promises/history_promises.h"

#include <algorithm>

#include "tests/fuzz/promises/promise.h"
#include "tests/fuzz/promises/replay_promises.h"
#include "tools/spillway/diff/difference.h"
#include "tools/spillway/history/moment.h"
#include "tools/spillway/page/page.h"
#include "tools/spillway/perfetto/write.h"
#include "tools/spillway/replay/counterfactuals.h"
#include "tools/spillway/rmm/judge.h"
#include "tools/spillway/snapshot/report.h"
#include "tools/spillway/snapshot/snapshot.h"
#include "tools/spillway/snapshot/write.h"

namespace spillway::fuzz {
namespace {

using namespace tools;

const std::string kPath = "some.file";
constexpr uint64_t kMostMilliseconds = 20;  // of the replays behind a report

void closes(const Holdings& at) {
  promise(at.reserved == at.in_use + at.rounding + at.pending + at.idle + at.elsewhere,
          "reserved = in use + rounding + pending + idle + elsewhere");
}

void reports(const MemoryHistory& history, const HistoryFindings& found, uint64_t choice) {
  std::optional<Counterfactuals> fitted;
  if (choice % 5 == 0) {  // slow
    fitted = what_would_have_fitted(history, found, kMostMilliseconds);
    promise(fitted->items.empty() != fitted->no_answer.empty(), "either alternatives or why there are none");
  }
  const SnapshotReport report{kPath, history, found, fitted ? &*fitted : nullptr};
  const std::string text = snapshot_text(report);
  promise_holds(text, kPath);
  promise_holds(text, found.failure ? "Verdict: " : "No request failed");
  promise_holds(text, "Where the memory was");
  if (!history.incomplete.empty()) promise_holds(text, history.incomplete);
  const auto json = json_of(snapshot_json(report));
  promise(json.is_object() && !json.empty(), "the JSON is an object");
  if (choice % 8 == 0) is_inert(snapshot_page(report));
}

void compares(const MemoryHistory& history, const HistoryFindings& found) {
  const DeviceHistory& device = history.devices.at(found.device);
  const MomentSide peak{&history, found.device, peak_of(device)};
  const MomentSide end{&history, found.device, device.events.size()};
  const Difference same = difference_of(end, end);
  promise(same.places.empty(), "nothing differs from itself");
  const Difference difference = difference_of(peak, end);
  for (const PlaceChange& place : difference.places)
    promise(place.before != place.after || place.blocks_before != place.blocks_after,
            "a place that changed differs");
  promise_holds(difference_text(difference, "a", "b"), "B - A");
  promise(json_of(difference_json(difference, "a", "b")).contains("places"), "the difference's JSON is one");
}

void replays(const MemoryHistory& history, const HistoryFindings& found) {
  const DeviceHistory& device = history.devices.at(found.device);
  const Requests requests = requests_of(device, found.failure_event.value_or(device.events.size()));
  promise(requests.older <= requests.requests.size(), "older requests are some of them");
  keeps_promises(requests, torch_settings_of(history));
}

// What is written for PyTorch's viewer can be read again, and is whole.
void is_written(const MemoryHistory& history) {
  std::string error;
  const auto again = parse_snapshot(snapshot_of(history), &error);
  promise(again.has_value(), "a snapshot that was written is one", error);
  promise(again->incomplete.starts_with(history.incomplete) &&
              again->incomplete.find("at byte", history.incomplete.size()) == std::string::npos,
          "a snapshot that was written lacks what the history lacks", again->incomplete);
  for (const auto& [number, device] : history.devices)
    promise(number < 0 || device.segments.empty() || again->devices.contains(number),
            "a device that was written is read again");
}

void draws(const MemoryHistory& history) {
  const PerfettoTrace trace = perfetto_of(history, nullptr);
  promise(trace.blocks_drawn <= trace.blocks, "the blocks that are drawn are some of them");
}

}  // namespace

void is_inert(const std::string& page) {
  static const size_t known = [] {
    MemoryHistory nothing;
    nothing.devices[0];
    const HistoryFindings none;
    const std::string empty = snapshot_page({kPath, nothing, none});
    return static_cast<size_t>(std::count(empty.begin(), empty.end(), '<'));
  }();
  promise(static_cast<size_t>(std::count(page.begin(), page.end(), '<')) == known,
          "the page's data holds no markup");
}

void keeps_promises(const MemoryHistory& history, uint64_t choice) {
  for (const auto& [number, device] : history.devices)
    for (const HistoryEvent& event : device.events)
      promise(event.stack < history.stacks.size(), "an event's stack is one of the history's");
  if (choice % 4 == 1) is_written(history);
  if (choice % 16 == 2) draws(history);
  const std::optional<uint64_t> capacity =
      choice % 3 == 0 ? std::optional<uint64_t>(choice >> (choice % 64)) : std::nullopt;
  auto found = look_into(history, capacity);
  if (!found) return;
  if (history.requests_only) judge_by_requests(&*found);
  promise(history.devices.contains(found->device), "the device that is shown is one of the history's");
  closes(found->holdings);
  reports(history, *found, choice);
  if (choice % 4 == 2) compares(history, *found);
  if (choice % 4 == 3) replays(history, *found);
}

}  // namespace spillway::fuzz
