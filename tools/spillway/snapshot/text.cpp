#include <algorithm>
#include <cmath>

#include "tools/spillway/report/text/kinds_text.h"
#include "tools/spillway/report/text/last_events_text.h"
#include "tools/spillway/report/text/lines_text.h"
#include "tools/spillway/report/text/near_holes_text.h"
#include "tools/spillway/report/text/pools_text.h"
#include "tools/spillway/report/text/table.h"
#include "tools/spillway/snapshot/report.h"
#include "tools/spillway/units.h"

namespace spillway::tools {
namespace {

constexpr size_t kReservedTerms = 5;  // of kHoldingTerms: they add up to what is reserved

std::string percent(uint64_t part, uint64_t whole) {
  const double share = whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
  return std::to_string(std::lround(share)) + "%";
}

std::string noun(const SnapshotReport& report) {
  return report.snapshot.requests_only ? "log" : "snapshot";
}

std::string verdict_line(const SnapshotReport& report) {
  const HistoryFindings& found = report.findings;
  if (!found.failure) return "No request failed in what the " + noun(report) + " tells.\n";
  return std::string("Verdict: ") + cause_name(found.verdict.cause) + ": " + found.verdict.text +
         found.remark + ".\n";
}

std::string from_text(const std::string& caller) {
  return caller.empty() ? "" : "  from " + caller;
}

std::string request_text(const HistoryFindings& found) {
  if (!found.failure) return "";
  const FailedRequest& request = *found.failure;
  std::string text = "\nThe request that failed\n";
  text += "  asked  " + exact_size_text(request.bytes) + "\n";
  text += "  where  GPU " + std::to_string(found.device) + ", stream " + address_text(request.stream) + "\n";
  text += "  by     " + request.where + from_text(request.caller) + "\n";
  if (found.failures > 1)
    text += "  It is the last of " + std::to_string(found.failures) + " failures in the history.\n";
  return text;
}

// Of a file that has requests alone.
std::string in_use_text(const Holdings& at) {
  Table table({Align::kLeft, Align::kRight, Align::kLeft});
  table.add({"in use", exact_size_text(at.in_use), kHoldingTerms[0].meaning});
  if (!at.capacity)
    return table.text("  ") +
           "  What the pool held beside that is not in the file: --capacity SIZE of it helps the verdict.\n";
  if (*at.capacity >= at.in_use)
    table.add({"+ not in use", exact_size_text(*at.capacity - at.in_use), "in the pool, or not taken by it"});
  table.add({"= capacity", exact_size_text(*at.capacity), "as --capacity says"});
  return table.text("  ");
}

std::string reserved_text(const SnapshotReport& report) {
  const HistoryFindings& found = report.findings;
  const Holdings& at = found.holdings;
  Table table({Align::kLeft, Align::kRight, Align::kLeft});
  const auto row = [&](const std::string& name, const std::string& bytes, const char* meaning) {
    table.add({name, bytes, meaning});
  };
  const std::optional<uint64_t> bytes[] = {at.in_use,    at.rounding, at.pending,  at.idle,
                                           at.elsewhere, at.free,     at.outside()};
  row("reserved", exact_size_text(at.reserved),
      report.snapshot.settings.contains("spillway_replay") ? "held by the allocator"
                                                           : "held by PyTorch's allocator");
  for (size_t i = 0; i < std::size(kHoldingTerms); ++i) {
    const char* const sign = i == 0 ? "= " : i < kReservedTerms ? "+ " : "";
    if (const auto& known = bytes[i])
      row(sign + std::string(kHoldingTerms[i].name), exact_size_text(*known), kHoldingTerms[i].meaning);
  }
  if (at.capacity) row("card", exact_size_text(*at.capacity), "reserved + free + outside");
  std::string text = table.text("  ");
  if (at.idle > 0) text += "  largest idle piece: " + exact_size_text(at.largest_idle) + "\n";
  if (at.free && !at.capacity)
    text += "  What others hold is not in a snapshot: --capacity SIZE of the card shows it.\n";
  return text;
}

std::string holdings_text(const SnapshotReport& report) {
  const HistoryFindings& found = report.findings;
  const std::string text = std::string("\nWhere the memory was when ") +
                           (found.failure ? "it failed\n" : "the " + noun(report) + " was written\n");
  return text + (report.snapshot.requests_only ? in_use_text(found.holdings) : reserved_text(report));
}

std::string age_text(const Holder& holder, bool has_clock) {
  if (!has_clock) return "";
  return holder.oldest_us ? duration_text(*holder.oldest_us) : "before history";
}

std::string growth_text(const Holder& holder) {
  return holder.growth ? "+" + size_text(holder.growth->bytes_per_step) + " a step" : "";
}

// Without a clock no event has a time, as in an old snapshot or a replay's.
std::string holders_text(const std::vector<Holder>& holders, uint64_t whole, bool has_clock) {
  using enum Align;
  Table table({kRight, kRight, kRight, kRight, kLeft, kLeft});
  table.add({"bytes", "share", "blocks", has_clock ? "oldest" : "", "growth", "place"});
  const bool grows = std::any_of(holders.begin(), holders.end(),
                                 [](const Holder& holder) { return holder.growth.has_value(); });
  for (size_t i = 0; i < std::min(kHoldersShown, holders.size()); ++i) {
    const Holder& holder = holders[i];
    table.add({size_text(holder.bytes), percent(holder.bytes, whole), std::to_string(holder.blocks),
               age_text(holder, has_clock), growth_text(holder), holder.where + from_text(holder.caller)});
  }
  std::string text = table.text("  ");
  if (holders.size() > kHoldersShown)
    text +=
        "  and " + count_text(holders.size() - kHoldersShown, "place", "places") + " more (--json has all)\n";
  if (grows) text += "  growth: what each of the program's steps leaves and does not free again.\n";
  return text;
}

std::string events_text(const SnapshotReport& report) {
  const LastEvents last = last_events_of(report);
  return last.groups.empty() ? "" : "\n" + last_events_text(last);
}

std::string alloc_conf_text(const MemoryHistory& snapshot) {
  for (const char* name : {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"}) {
    const auto found = snapshot.settings.find(name);
    if (found != snapshot.settings.end() && !found->second.empty())
      return "  " + found->first + "=" + found->second + "\n";
  }
  return "";
}

std::string settings_text(const MemoryHistory& snapshot) {
  if (const auto replay = snapshot.settings.find("spillway_replay"); replay != snapshot.settings.end())
    return "  placed by a replay: " + replay->second + "\n" + alloc_conf_text(snapshot);
  return alloc_conf_text(snapshot);
}

std::string completeness_text(const SnapshotReport& report) {
  const HistoryFindings& found = report.findings;
  std::string text = "\nThe " + noun(report) + "\n  ";
  text += report.snapshot.incomplete.empty() ? "whole file" : "NOT WHOLE: " + report.snapshot.incomplete;
  text += "\n  ";
  if (found.events == 0)
    text += "no history: torch.cuda.memory._record_memory_history() before the first allocation records one";
  else
    text += count_text(found.events, "event", "events") +
            (found.span_us > 0 ? " in " + duration_text(found.span_us) : std::string());
  if (found.steps > 0) text += ", " + count_text(found.steps, "step", "steps");
  text += "\n";
  if (!report.snapshot.remark.empty()) text += "  " + report.snapshot.remark + "\n";
  if (found.contradictions > 0)
    text += "  " + count_text(found.contradictions, "event", "events") +
            " do not go with the blocks: what was held then is not certain\n";
  if (report.snapshot.passed_over > 0)
    text += "  " + count_text(report.snapshot.passed_over, "entry", "entries") +
            " of an unknown form passed over\n";
  return text + settings_text(report.snapshot);
}

}  // namespace

std::string held_text(const HistoryFindings& found, const std::string& title, uint64_t older_bytes) {
  std::string text = "\n" + title + "\n" +
                     holders_text(found.holders, found.holdings.in_use + older_bytes, found.span_us > 0);
  if (older_bytes > 0)
    text += "  " + size_text(older_bytes) +
            " besides were allocated before what is left of the history: by which lines is not known.\n";
  return text;
}

std::string peak_text(const HistoryFindings& found) {
  if (found.peak_is_the_failure || found.events == 0) return "";
  return "\nAt the peak of " + size_text(found.peak_bytes) + ", earlier in the history\n" +
         holders_text(found.at_peak, found.peak_bytes, found.span_us > 0);
}

std::string snapshot_text(const SnapshotReport& report) {
  const HistoryFindings& found = report.findings;
  std::string text = std::string(report.file) + ": " + report.path + "\n" + verdict_line(report);
  text += request_text(found) + holdings_text(report);
  text += held_text(found, found.failure ? "Who held it" : "Who holds it") + lines_text(named_lines(report)) +
          kinds_text(found.kinds) + near_holes_text(found.near_holes) + pools_text(found.pools);
  if (found.failure && report.fitted != nullptr) text += counterfactuals_text(*report.fitted);
  return text + peak_text(found) + events_text(report) + completeness_text(report);
}

}  // namespace spillway::tools
