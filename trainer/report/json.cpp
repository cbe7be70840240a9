#include <nlohmann/json.hpp>

#include "trainer/report/report.h"

namespace spillway::trainer {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kReportVersion = 1;

Json json_of(const std::optional<double>& value) {
  return value ? Json(*value) : Json();
}

Json peaks_json(const std::vector<DevicePeaks>& devices) {
  Json all = Json::array();
  for (size_t i = 0; i < devices.size(); ++i)
    all.push_back({{"device", i},
                   {"live_peak_bytes", devices[i].live},
                   {"reserved_peak_bytes", devices[i].reserved},
                   {"limit_bytes", devices[i].limit}});
  return all;
}

Json estimate_json(const Estimate& estimate) {
  Json items = Json::array();
  for (const EstimateItem& item : estimate.items) {
    Json one = {
        {"name", item.name}, {"device", item.host ? Json() : Json(item.device)}, {"bytes", item.bytes}};
    items.push_back(std::move(one));
  }
  return {{"items", std::move(items)},
          {"device_peak_bytes", estimate.device_peak_bytes},
          {"evaluation_peak_bytes", estimate.evaluation_peak_bytes},
          {"host_bytes", estimate.host_bytes}};
}

Json time_json(const RunReport& report, const PlanUse& use) {
  const StepTime& time = use.estimate.time;
  const Speed speed = speed_of(report, use);
  const bool known = speed.achieved > 0;
  return {{"arithmetic_seconds", time.compute},
          {"device_memory_seconds", time.memory},
          {"launch_seconds", time.launches},
          {"optimizer_seconds", time.optimizer},
          {"host_link_seconds", time.host_link},
          {"streamed_seconds", time.streamed},
          {"peer_link_seconds", time.peer_link},
          {"nvme_seconds", time.nvme},
          {"ranks_seconds", time.ranks},
          {"predicted_seconds", speed.predicted},
          {"limit", time.limit()},
          {"achieved_seconds", known ? Json(speed.achieved) : Json()},
          {"tokens_per_second", known ? Json(speed.tokens_per_second) : Json()},
          {"share", json_of(speed.share)},
          {"utilization", json_of(speed.utilization)},
          {"operations", time.operations}};
}

Json plans_json(const RunReport& report) {
  Json all = Json::array();
  for (const PlanUse& use : report.history.plans())
    all.push_back({{"plan", to_string(use.plan)},
                   {"steps", use.steps},
                   {"estimate", estimate_json(use.estimate)},
                   {"measured", peaks_json(use.devices)},
                   {"time", time_json(report, use)}});
  return all;
}

Json points_json(const RunHistory& history) {
  Json all = Json::array();
  for (const StepPoint& point : history.points())
    all.push_back({{"first_step", point.first},
                   {"last_step", point.last},
                   {"plan", point.plan},
                   {"loss", point.loss},
                   {"least_loss", point.least_loss},
                   {"most_loss", point.most_loss},
                   {"seconds", point.seconds},
                   {"devices", peaks_json(point.devices)}});
  return all;
}

Json asked_json(const std::optional<AskedUndo>& asked) {
  if (!asked) return {};
  return {{"rank", asked->rank},
          {"attempt", asked->attempt},
          {"guarantee", name_of(asked->guarantee)},
          {"plan_before", to_string(asked->before)},
          {"plan_after", to_string(asked->after)},
          {"why_all_end", asked->why_all_end.empty() ? Json() : Json(asked->why_all_end)}};
}

Json moves_json(const RunHistory& history) {
  Json all = Json::array();
  for (const PlanMove& move : history.moves())
    all.push_back({{"step", move.step},
                   {"action", move.action},
                   {"phase", move.phase.empty() ? Json() : Json(move.phase)},
                   {"incident", move.incident},
                   {"reason", move.reason},
                   {"plan", to_string(move.to)},
                   {"asked", asked_json(move.asked)}});
  return all;
}

Json rates_json(const RunReport& report) {
  const Machine& rates = report.history.rates();
  return {{"measured", report.rates_measured},
          {"from", report.rates_from},
          {"flops", rates.flops},
          {"memory_bytes_per_second", rates.memory_bytes_per_second},
          {"host_bytes_per_second", rates.host_bytes_per_second},
          {"peer_bytes_per_second", rates.peer_bytes_per_second},
          {"launch_seconds", rates.launch_seconds}};
}

Json rank_json(const std::optional<RankPart>& rank) {
  if (!rank) return {};
  Json incident;
  if (rank->incident)
    incident = {
        {"number", rank->incident->number}, {"rank", rank->incident->rank}, {"cause", rank->incident->cause}};
  return {{"rank", rank->rank},
          {"size", rank->size},
          {"start", rank->start},
          {"waited_seconds", rank->waited_seconds},
          {"incident", std::move(incident)}};
}

}  // namespace

Json report_json(const RunReport& report) {
  Json evaluations = Json::array();
  for (const EvaluationPoint& evaluation : report.history.evaluations())
    evaluations.push_back({{"step", evaluation.step}, {"loss", evaluation.loss}});
  return {{"spillway_run_report", kReportVersion},
          {"verdict", report.verdict},
          {"model", report.model},
          {"rank", rank_json(report.rank)},
          {"rates", rates_json(report)},
          {"plans", plans_json(report)},
          {"points", points_json(report.history)},
          {"moves", moves_json(report.history)},
          {"all_moves", report.history.all_moves()},
          {"moves_of_others", report.history.moves_of_others()},
          {"evaluations", std::move(evaluations)}};
}

}  // namespace spillway::trainer
