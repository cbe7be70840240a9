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
  const uint64_t live =
      incident.term(trace::Term::kLive).value_or(0) + incident.term(trace::Term::kSpilled).value_or(0);
  Table table({Align::kRight, Align::kRight, Align::kRight, Align::kLeft});
  table.add({"bytes", "share", "blocks", "place"});
  const size_t shown = std::min(kHoldersShown, incident.holders.size());
  for (size_t i = 0; i < shown; ++i) {
    const SiteShare& holder = incident.holders[i];
    table.add({size_text(holder.bytes), share_text(holder.bytes, live), std::to_string(holder.blocks),
               site_text(holder.site)});
  }
  std::string text = "\nWho held it\n" + table.text("  ");
  if (incident.holders.size() > shown)
    text += "  and " + count_text(incident.holders.size() - shown, "place", "places") +
            " more (--json has all)\n";
  return text + sampling_text(input);
}

}  // namespace spillway::tools
