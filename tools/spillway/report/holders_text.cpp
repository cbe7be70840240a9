// Who asked, and who held the memory.
#include <algorithm>
#include <cmath>

#include "tools/spillway/report/render.h"
#include "tools/spillway/report/table.h"
#include "tools/spillway/report/verdict.h"
#include "tools/spillway/units.h"

namespace spillway::tools {
namespace {

constexpr size_t kHoldersShown = 12;

std::string share_text(uint64_t part, uint64_t whole) {
  if (whole == 0) return "";
  return std::to_string(std::lround(100.0 * static_cast<double>(part) / static_cast<double>(whole))) + "%";
}

std::string sampling_text(const ReportInput& input) {
  const auto found = input.contents.settings.find("stacks");
  if (found == input.contents.settings.end() || found->second == "all") return "";
  return "  estimated: of the allocations, large ones and a sample of the small ones have a place "
         "(SPILLWAY_STACKS=all: every one)\n";
}

}  // namespace

const Growth* growth_of(const ReportInput& input, const SiteName& site) {
  if (input.findings == nullptr) return nullptr;
  for (const Holder& holder : input.findings->holders)
    if (holder.where == site.where && holder.caller == site.caller && holder.growth) return &*holder.growth;
  return nullptr;
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
  Table table = grows ? Table({Align::kRight, Align::kRight, Align::kRight, Align::kLeft, Align::kLeft})
                      : Table({Align::kRight, Align::kRight, Align::kRight, Align::kLeft});
  const auto add = [&](std::vector<std::string> row, const std::string& growth, const std::string& place) {
    if (grows) row.push_back(growth);
    row.push_back(place);
    table.add(std::move(row));
  };
  add({"bytes", "share", "blocks"}, "growth", "place");
  const size_t shown = std::min(kHoldersShown, incident.holders.size());
  for (size_t i = 0; i < shown; ++i) {
    const SiteShare& holder = incident.holders[i];
    const Growth* growth = growth_of(input, holder.site);
    add({size_text(holder.bytes), share_text(holder.bytes, live), std::to_string(holder.blocks)},
        growth == nullptr ? "" : "+" + size_text(growth->bytes_per_step) + " a step", site_text(holder.site));
  }
  std::string text = "\nWho held it\n" + table.text("  ");
  if (incident.holders.size() > shown)
    text += "  and " + count_text(incident.holders.size() - shown, "place", "places") +
            " more (--json has all)\n";
  if (grows) text += "  growth: what each of the program's steps leaves and does not free again\n";
  return text + sampling_text(input);
}

}  // namespace spillway::tools
