// Who asked, and who held the memory.
#include <algorithm>
#include <cmath>

#include "tools/spillway/report/render.h"
#include "tools/spillway/report/text/lines_text.h"
#include "tools/spillway/report/text/table.h"
#include "tools/spillway/report/verdict.h"
#include "tools/spillway/snapshot/report.h"
#include "tools/spillway/units.h"

namespace spillway::tools {
namespace {

std::string share_text(uint64_t part, uint64_t whole) {
  if (whole == 0) return "";
  return std::to_string(std::lround(100.0 * static_cast<double>(part) / static_cast<double>(whole))) + "%";
}

bool has_stacks(const ReportInput& input) {
  const auto found = input.contents.settings.find("stacks");
  return found == input.contents.settings.end() || found->second != "none";
}

std::string sampling_text(const ReportInput& input) {
  if (!is_sampled(input)) return "";
  return "  estimated: a sample of the allocations has a place, the others count to the places of those of "
         "their size\n"
         "  (SPILLWAY_STACKS=all: every one)\n";
}

}  // namespace

bool is_sampled(const ReportInput& input) {
  const auto found = input.contents.settings.find("stacks");
  return found != input.contents.settings.end() && found->second != "all";
}

const Holder* holder_of(const ReportInput& input, const SiteName& site) {
  if (input.findings == nullptr) return nullptr;
  for (const Holder& holder : input.findings->holders)
    if (holder.where == site.where && holder.caller == site.caller) return &holder;
  return nullptr;
}

const Growth* growth_of(const ReportInput& input, const SiteName& site) {
  const Holder* holder = holder_of(input, site);
  return holder != nullptr && holder->growth ? &*holder->growth : nullptr;
}

std::string site_text(const SiteName& site) {
  return site.where + (site.caller.empty() ? "" : "  from " + site.caller);
}

std::string holders_text(const ReportInput& input) {
  const Incident& incident = *input.incident;
  if (incident.holders.empty() && is_driver_call(incident) && incident.asker)
    return "  Which lines held it is known under `spillway run --mode replace`, or from PyTorch's own "
           "history\n"
           "  (docs/snapshots.md).\n";
  if (incident.holders.empty()) return "";
  // The holders are noted at the incident's end, what is live at its beginning.
  uint64_t held = 0;
  for (const SiteShare& holder : incident.holders) held += holder.bytes;
  const uint64_t live = std::max(
      held, incident.term(trace::Term::kLive).value_or(0) + incident.term(trace::Term::kSpilled).value_or(0));
  const bool grows = std::ranges::any_of(
      incident.holders, [&](const SiteShare& holder) { return growth_of(input, holder.site) != nullptr; });
  const bool are_dated = std::ranges::any_of(incident.holders, [&](const SiteShare& share) {
    const Holder* const holder = holder_of(input, share.site);
    return holder != nullptr && holder->oldest_us.has_value();
  });
  std::vector<Align> columns{Align::kRight, Align::kRight, Align::kRight};
  if (are_dated) columns.push_back(Align::kRight);
  if (grows) columns.push_back(Align::kLeft);
  columns.push_back(Align::kLeft);
  Table table(columns);
  const auto add = [&](std::vector<std::string> row, const std::string& oldest, const std::string& growth,
                       const std::string& place) {
    if (are_dated) row.push_back(oldest);
    if (grows) row.push_back(growth);
    row.push_back(place);
    table.add(std::move(row));
  };
  add({"bytes", "share", "blocks"}, "oldest", "growth", "place");
  const size_t shown = std::min(kHoldersShown, incident.holders.size());
  for (size_t i = 0; i < shown; ++i) {
    const SiteShare& share = incident.holders[i];
    const Growth* growth = growth_of(input, share.site);
    const Holder* holder = holder_of(input, share.site);
    add({size_text(share.bytes), share_text(share.bytes, live), std::to_string(share.blocks)},
        holder == nullptr || !holder->oldest_us ? "" : duration_text(*holder->oldest_us),
        growth == nullptr ? "" : "+" + size_text(growth->bytes_per_step) + " a step", site_text(share.site));
  }
  std::string text = "\nWho held it\n" + table.text("  ");
  if (incident.holders.size() > shown)
    text += "  and " + count_text(incident.holders.size() - shown, "place", "places") +
            " more (--json has all)\n";
  if (grows) text += "  growth: what each of the program's steps leaves and does not free again\n";
  return text + sampling_text(input) + lines_text(named_lines(input));
}

namespace {

std::string told_when_text(const trace::Contents& contents, uint64_t told_ns) {
  const uint64_t now = trace::clock_ns();
  if (contents.writer != trace::Liveness::kRuns || now < told_ns)
    return "when the process last told it, 10 s before the end at most";
  return "as the process told it " + duration_text((now - told_ns) / 1000) + " ago";
}

}  // namespace

std::string at_last_text(const ReportInput& input) {
  if (input.at_last == nullptr || !has_stacks(input)) return "";
  const HistoryFindings& found = *input.at_last;
  std::string title =
      input.contents.writer == trace::Liveness::kRuns ? "Who holds it now" : "Who held it at last";
  if (input.told_ns) title += " (" + told_when_text(input.contents, *input.told_ns) + ")";
  if (input.last.size() > 1) title += ", of device " + std::to_string(found.device);
  const uint64_t older = older_bytes(input);
  const std::string text = held_text(found, title, older) + sampling_text(input);
  // The most that a part of the blocks took says nothing.
  return older > 0 || found.failure || input.told_ns ? text : text + peak_text(found);
}

}  // namespace spillway::tools
