#include "tools/spillway/rehearse/report/report_json.h"

#include <nlohmann/json.hpp>

#include "tools/spillway/rehearse/judge/diagnosis.h"
#include "tools/spillway/rehearse/judge/failure_text.h"
#include "tools/spillway/rehearse/judge/places.h"
#include "tools/spillway/rehearse/report/report_text.h"

namespace spillway::tools {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const Place& place) {
  Json frames = Json::array();
  for (const Frame& frame : place.frames)
    frames.push_back({{"function", frame.function}, {"file", frame.file}, {"line", frame.line}});
  return {{"where", where_of(place)}, {"caller", caller_of(place)}, {"frames", frames}};
}

Json json_of(const std::vector<Held>& held, const std::map<uint32_t, Place>& places) {
  Json list = Json::array();
  for (const Held& one : held) {
    Json row = {{"bytes", one.bytes}, {"blocks", one.blocks}};
    const auto place = one.place ? places.find(*one.place) : places.end();
    row.update(place == places.end() ? Json{{"where", "small places"}} : json_of(place->second));
    list.push_back(row);
  }
  return list;
}

Json json_of(const std::vector<Point>& points) {
  Json list = Json::array();
  for (const Point& point : points) list.push_back({point.last_event, point.allocated, point.reserved});
  return list;
}

// At the peak, without what holds nothing then.
Json parts_of(const CardView& card) {
  Json list = Json::array();
  for (const auto& [label, bytes] : card.modelled_at_peak)
    if (bytes > 0)
      list.push_back(
          {{"part", label}, {"bytes", bytes}, {"certainty", certainty_name(certainty_of(card, label))}});
  return list;
}

Json json_of(const Observation& process, const DeviceObservation& device) {
  const Need need = need_of(device);
  Json json = {{"process", process.pid},
               {"rank", process.rank ? Json(*process.rank) : Json(nullptr)},
               {"gpu", device.ordinal},
               {"physical", physical_of(device)},
               {"card", device.card ? device.card->card : ""},
               {"capacity_bytes", need.capacity},
               {"peak_bytes", need.peak},
               {"peak_allocated_bytes", need.allocated},
               {"peak_reserved_bytes", need.reserved},
               {"outside_bytes", need.outside},
               {"outside_peak_bytes", need.outside_peak},
               {"outside_parts", device.card ? parts_of(*device.card) : Json::array()},
               {"refused_requests", device.card ? device.card->refused : 0},
               {"refused_parts", device.card ? Json(device.card->refused_parts) : Json::object()}};
  if (!device.allocator) return json;
  const AllocatorView& view = *device.allocator;
  json.update({{"events", view.events},
               {"stream_hash", view.stream_hash},
               {"peak_step", view.peak_step},
               {"held_at_peak", json_of(view.held_at_peak, process.places)},
               {"kinds_at_peak",
                {{"parameters", view.parameters},
                 {"gradients", view.gradients},
                 {"optimizer_state", view.optimizer_state}}},
               {"timeline", json_of(view.timeline)},
               {"steps", json_of(view.steps)}});
  return json;
}

Json json_of(const Observation& process, const Failure& failure) {
  const auto place = process.places.find(failure.place);
  return {{"process", process.pid},
          {"gpu", failure.device},
          {"requested_bytes", failure.requested},
          {"allocated_bytes", failure.allocated},
          {"reserved_bytes", failure.reserved},
          {"device_free_bytes", failure.device_free},
          {"limit_bytes", failure.limit},
          {"step", failure.step},
          {"cause", verdict_of({&process, &failure}).text},
          {"place", place == process.places.end() ? Json(nullptr) : json_of(place->second)},
          {"held", json_of(failure.held, process.places)}};
}

Json json_of(const Observation& process, const Read& read) {
  static constexpr const char* kKinds[] = {"shape", "value", "copy", "bulk", "number", "branch"};
  const auto place = process.places.find(read.place);
  return {{"process", process.pid},
          {"kind", kKinds[static_cast<int>(read.kind)]},
          {"count", read.count},
          {"bytes", read.bytes},
          {"place", place == process.places.end() ? Json(nullptr) : json_of(place->second)}};
}

Json json_of(const Counterfactual& other) {
  const Need need = largest_need(other.rehearsal);
  return {{"what", other.what},
          {"verdict", fit_name(decide(other.rehearsal))},
          {"peak_bytes", need.peak},
          {"peak_allocated_bytes", need.allocated},
          {"peak_reserved_bytes", need.reserved},
          {"outside_bytes", need.outside}};
}

Json json_of(const Holder& holder) {
  return {{"where", holder.where},
          {"caller", holder.caller},
          {"bytes", holder.bytes},
          {"blocks", holder.blocks},
          {"bytes_per_step", holder.growth ? holder.growth->bytes_per_step : 0},
          {"steps", holder.growth ? holder.growth->steps : 0}};
}

Json json_of(const OwnLimit& limit) {
  return {{"bytes", limit.bytes == 0 ? Json() : Json(limit.bytes)},
          {"fraction", limit.is_fraction ? Json(limit.fraction()) : Json()}};
}

// Of the request that decided, as the text and the page have it.
Json cause_of(const Rehearsal& rehearsal) {
  const auto diagnosis = diagnose(rehearsal);
  if (!diagnosis) return {};
  return {{"name", cause_name(diagnosis->cause)},
          {"text", diagnosis->text},
          {"advice", advice_of(*diagnosis)},
          {"grows", diagnosis->grows ? json_of(*diagnosis->grows) : Json()},
          {"own_limit", diagnosis->own_limit ? json_of(*diagnosis->own_limit) : Json()}};
}

// By memory alone; nothing where no run showed the need.
Json cards_enough(const Explanation& explanation) {
  for (const Counterfactual& run : explanation.runs)
    if (is_ample(run) && !explanation.only_delayed && decide(run.rehearsal) == Fit::kFits)
      return cards_by_memory(run.rehearsal, explanation).enough;
  return {};
}

Json fraction_enough(const Explanation& explanation) {
  for (const Counterfactual& run : explanation.runs)
    if (is_ample(run) && decide(run.rehearsal) == Fit::kFits)
      if (const auto enough = fraction_enough(run.rehearsal, explanation)) return *enough;
  return {};
}

Json ending_of(const std::optional<Ending>& ending) {
  return ending ? Json{{"verdict", fit_name(ending->fit)}, {"exit_code", ending->exit_code}} : Json();
}

Json cards_of(const Rehearsal& rehearsal) {
  Json list = Json::array();
  for (const CardNeed& card : needs_of(rehearsal))
    list.push_back({{"physical", card.physical},
                    {"processes", card.processes},
                    {"capacity_bytes", card.need.capacity},
                    {"peak_bytes", card.need.peak},
                    {"peak_allocated_bytes", card.need.allocated},
                    {"peak_reserved_bytes", card.need.reserved},
                    {"outside_bytes", card.need.outside}});
  return list;
}

Json processes_of(const Rehearsal& rehearsal) {
  Json list = Json::array();
  for (const Observation& process : rehearsal.processes)
    list.push_back({{"process", process.pid},
                    {"rank", process.rank ? Json(*process.rank) : Json(nullptr)},
                    {"without_report", process.unreported},
                    {"probe", process.has_probe},
                    {"complete", process.complete},
                    {"problem", process.problem},
                    {"optimizer_steps", process.steps},
                    {"ended_by_steps", process.ended_by_steps},
                    {"uncaught", process.uncaught_type},
                    {"message", process.uncaught_message}});
  return list;
}

}  // namespace

const char* fit_name(Fit fit) {
  switch (fit) {
    case Fit::kFits:
      return "fits";
    case Fit::kDoesNotFit:
      return "does_not_fit";
    case Fit::kWentOn:
      return "went_on";
    case Fit::kProgramFailed:
      return "program_failed";
    case Fit::kNoDevice:
      return "no_device";
    case Fit::kNoKernels:
      return "no_kernels";
  }
  return "";
}

std::string report_json(const RunOptions& options, const Rehearsal& rehearsal,
                        const Explanation& explanation) {
  Json devices = Json::array(), failures = Json::array(), reads = Json::array(), driver_reads = Json::array(),
       runs = Json::array();
  for (const Observation& process : rehearsal.processes) {
    for (const auto& [ordinal, device] : process.devices) devices.push_back(json_of(process, device));
    for (const Failure& failure : process.failures) failures.push_back(json_of(process, failure));
    for (const Read& read : process.reads) reads.push_back(json_of(process, read));
    for (const DriverReads& read : process.driver_reads)
      driver_reads.push_back({{"process", process.pid},
                              {"site", read.site},
                              {"small_copies", read.small},
                              {"bulk_copies", read.bulk}});
  }
  for (const Counterfactual& other : explanation.runs) runs.push_back(json_of(other));
  const FailedRequests failed = failed_requests(rehearsal);
  const Json json = {{"spillway_rehearse", 1},
                     {"verdict", fit_name(decide(rehearsal))},
                     {"conditional", is_conditional(values_of(options, rehearsal), rehearsal)},
                     {"condition", fits_if(options, rehearsal)},
                     {"why", failure_line(rehearsal)},
                     {"cause", cause_of(rehearsal)},
                     {"exit_code", exit_code_of(rehearsal)},
                     {"program_exit_code", rehearsal.exit_code},
                     {"stopped_by_signal", rehearsal.stopped_by},
                     {"command", options.command},
                     {"allocator", options.allocator},
                     {"values", values_of(options, rehearsal)},
                     {"seconds", rehearsal.seconds},
                     {"failed_requests", failed.seen()},
                     {"failed_outside_allocator", failed.outside},
                     {"perhaps_failed", failed.unsure},
                     {"processes", processes_of(rehearsal)},
                     {"cards", cards_of(rehearsal)},
                     {"devices", devices},
                     {"failures", failures},
                     {"reads", reads},
                     {"driver_reads", driver_reads},
                     {"assumed_sizes", assumed_sizes_of(rehearsal)},
                     {"with_all_masks", ending_of(rehearsal.with_all_masks)},
                     {"uncomputed", uncomputed_of(rehearsal)},
                     {"further_runs", runs},
                     {"cards_with_enough_memory", cards_enough(explanation)},
                     {"fraction_enough", fraction_enough(explanation)},
                     {"remarks", explanation.remarks},
                     {"damaged", rehearsal.damaged}};
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace spillway::tools
