#include "simulator/driver/report.h"

#include <unistd.h>

#include <fstream>
#include <map>
#include <utility>

#include "simulator/driver/call.h"

namespace spillway::simulator {
namespace {

std::string line(const std::string& what, Site site) {
  return what + ", made at " + describe_site(site) + "\n";
}

// Programs make streams and events by the dozen in one place: a line for each place.
template <typename Things>
std::string by_site(const std::string& what, const Things& things) {
  std::map<Site, std::pair<uint64_t, size_t>> places;  // the first one's number, and how many
  for (const auto& [id, thing] : things) ++places.try_emplace(thing->site, id, 0).first->second.second;
  std::string text;
  for (const auto& [site, made] : places)
    text += line(what + " " + std::to_string(made.first) +
                     (made.second > 1 ? " and " + std::to_string(made.second - 1) + " more" : "") +
                     " not destroyed",
                 site);
  return text;
}

std::string report_path() {
  std::string path = machine().config.report_path;
  if (const size_t place = path.find("%p"); place != std::string::npos)
    path.replace(place, 2, std::to_string(getpid()));
  return path;
}

// Runs when the process ends or unloads the library. What a program that dies otherwise did is in its trace.
__attribute__((destructor)) void write_report() {
  Machine& sim = machine();
  if (!sim.initialised || sim.forked || sim.config.report_path.empty()) return;
  const std::lock_guard lock(sim.mutex);
  std::ofstream out(report_path());
  out << "driver_calls " << sim.faults.calls() << "\ninjected_failures " << sim.faults.fired()
      << "\nviolations " << sim.referee.count() << "\nlive_pages_bytes " << sim.physical->live_bytes()
      << "\npeak_pages_bytes " << sim.physical->peak_bytes() << "\nlaunches " << sim.counters.launches
      << "\ncopies " << sim.counters.copies << "\ncopied_bytes " << sim.counters.copied_bytes
      << "\nvirtual_ns " << sim.clock.now() << "\ndriver_stall_ns " << sim.counters.stall_ns
      << "\n[violations]\n"
      << sim.referee.text() << "[leaks]\n"
      << leaks();
}

}  // namespace

std::string leaks() {
  Machine& sim = machine();
  std::string text;
  if (!sim.physical) return text;
  for (const auto& [handle, page] : sim.physical->pages())
    if (page->references > 0)
      text += line(
          "page " + std::to_string(handle) + " of " + std::to_string(page->bytes) + " bytes not released",
          page->site);
  for (const auto& [address, mapping] : sim.space.mappings())
    text += line(describe_range(address, mapping.allocation ? mapping.requested_bytes : mapping.bytes) +
                     (mapping.allocation ? " not freed" : " still mapped"),
                 mapping.site);
  for (const auto& [address, reservation] : sim.space.reservations())
    if (!reservation.internal)
      text +=
          line("reservation " + describe_range(address, reservation.bytes) + " not freed", reservation.site);
  for (const auto& [address, block] : sim.host.blocks())
    text += line("host memory " + describe_range(address, block.bytes) +
                     (block.registered ? " still registered" : " not freed"),
                 block.site);
  text += by_site("stream", sim.streams) + by_site("event", sim.events);
  return text;
}

}  // namespace spillway::simulator
