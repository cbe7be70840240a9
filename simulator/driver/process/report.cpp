#include "simulator/driver/process/report.h"

#include <unistd.h>

#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "base/output_file.h"
#include "simulator/driver/entry/call.h"

namespace spillway::simulator {
namespace {

using Json = nlohmann::ordered_json;

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
  const size_t name = path.rfind('/') + 1;  // a folder's name may have a %p of its own
  if (const size_t place = path.find("%p", name); place != std::string::npos)
    path.replace(place, 2, std::to_string(getpid()));
  return path;
}

Json lines(const std::string& text) {
  Json list = Json::array();
  std::istringstream stream(text);
  for (std::string text_line; std::getline(stream, text_line);) list.push_back(text_line);
  return list;
}

Json describe(const Device& device) {
  const Account& account = device.account;
  const cards::Card& card = machine().config.card;
  Json now = Json::object(), at_peak = Json::object();
  for (const auto& [label, part] : account.parts()) {
    now[label] = part.bytes;
    at_peak[label] = part.at_peak_bytes;
  }
  Json text = {{"ordinal", device.ordinal},
               {"physical", device.physical},
               {"card", card.id.empty() ? Json() : Json(card.id)},
               {"name", card.name},
               {"capacity_bytes", account.capacity_bytes()},
               {"peak_bytes", account.peak_bytes()},
               {"allocator_at_peak_bytes", account.allocator_at_peak_bytes()},
               {"outside_peak_bytes", account.outside_peak_bytes()},
               {"machine_peak_bytes", account.machine_peak_bytes()},
               {"charged_bytes", account.charged_bytes()},
               {"modelled_at_peak", std::move(at_peak)},
               {"modelled", std::move(now)},
               {"refused_requests", account.refused_requests()},
               {"refused_parts", account.refused_parts()},
               {"first_refusal", nullptr}};
  if (account.refused_requests() > 0)
    text["first_refusal"] = {{"asked_bytes", account.first_refusal().asked_bytes},
                             {"free_bytes", account.first_refusal().free_bytes},
                             {"label", account.first_refusal().label}};
  return text;
}

Json describe_reads() {
  Json list = Json::array();
  for (const auto& [site, reads] : machine().host_reads)
    list.push_back({{"site", describe_site(site)},
                    {"small_copies", reads.small_copies},
                    {"small_bytes", reads.small_bytes},
                    {"bulk_copies", reads.bulk_copies},
                    {"bulk_bytes", reads.bulk_bytes}});
  return list;
}

const char* values() {
  const Config& config = machine().config;
  return config.compute ? "compute" : config.chance ? "random" : "zeros";
}

Json describe(const char* when) {
  Machine& sim = machine();
  Json devices = Json::array();
  for (const auto& device : sim.devices) devices.push_back(describe(*device));
  return {{"version", 1},
          {"process", getpid()},
          {"written", when},
          {"values", values()},
          {"devices", std::move(devices)},
          {"counters",
           {{"driver_calls", sim.faults.calls()},
            {"injected_failures", sim.faults.fired()},
            {"live_pages_bytes", sim.physical->live_bytes()},
            {"peak_pages_bytes", sim.physical->peak_bytes()},
            {"launches", sim.counters.launches},
            {"copies", sim.counters.copies},
            {"copied_bytes", sim.counters.copied_bytes},
            {"to_device_bytes", sim.counters.to_device_bytes},
            {"to_host_bytes", sim.counters.to_host_bytes},
            {"pinned_peak_bytes", sim.host.pinned_peak_bytes()},
            {"virtual_ns", sim.clock.now()},
            {"driver_stall_ns", sim.counters.stall_ns}}},
          {"host_reads", describe_reads()},
          {"assumed_sizes", sim.counters.assumed_sizes},
          {"uncomputed", sim.uncomputed},
          {"other_runtime", sim.other_runtime},
          {"violations", {{"count", sim.referee.count()}, {"texts", lines(sim.referee.text())}}},
          {"leaks", lines(leaks())}};
}

// Runs when the process ends or unloads the library.
__attribute__((destructor)) void write_last_report() {
  Machine& sim = machine();
  if (sim.forked) return;
  const Locked lock(sim.mutex);
  write_report("end");
}

}  // namespace

CUresult write_report(const char* when) {
  const Machine& sim = machine();
  if (!sim.initialised || sim.config.report_path.empty()) return CUDA_SUCCESS;
  const std::string text = describe(when).dump(1, ' ', false, Json::error_handler_t::replace);
  if (spillway::write_text(report_path(), text + "\n") == 0) return CUDA_SUCCESS;
  static bool said = false;
  if (!said)
    std::fprintf(stderr, "spillway simulator: the report %s cannot be written\n", report_path().c_str());
  said = true;
  return CUDA_ERROR_FILE_NOT_FOUND;
}

CUresult refused_for_lack_of_room() {
  uint64_t refused = 0;
  for (const auto& device : machine().devices) refused += device->account.refused_requests();
  if (refused == 1) write_report("first refusal");
  return CUDA_ERROR_OUT_OF_MEMORY;
}

std::string leaks() {
  Machine& sim = machine();
  std::string text;
  if (!sim.physical) return text;
  for (const auto& [handle, page] : sim.physical->pages())
    if (page->references > 0 && page->label.label.empty())
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
