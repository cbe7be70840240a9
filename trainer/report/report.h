// The report at the end of a run: memory by kind over time, where the time of a step went, the changes of
// plan with their reasons, the losses. As text, as data, and as a picture.
//
// Thread-safety: pure functions, and `write` one thread. Errors: `write` says which file could not be
// written. Units: as the names say.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "trainer/ranks/incident.h"
#include "trainer/report/history.h"

namespace spillway::trainer {

// Of one of several ranks.
struct RankPart {
  uint32_t rank = 0, size = 1;
  std::string start;          // the number of the ranks' start: reports of one start belong together
  double waited_seconds = 0;  // for the others, at the host
  std::optional<Incident> incident;
};

struct RunReport {
  std::string verdict, model;  // a line each
  const RunHistory& history;
  // The rates are those of this machine, so that predicted and achieved times may be compared. What they are
  // otherwise, or come from, `rates_from` says: "as measured", "not measured, because ...".
  bool rates_measured = false;
  std::string rates_from;
  std::optional<RankPart> rank{};
};

// Of one plan, what the model of time predicts and what was achieved.
struct Speed {
  double predicted = 0,
         achieved = 0;           // seconds of a step; achieved: the median, 0 where none was undisturbed
  double tokens_per_second = 0;  // of the achieved
  std::optional<double> share;   // predicted ÷ achieved, where the rates are measured
  // Arithmetic of the model, without what is computed again, that a second has of what a product reaches.
  std::optional<double> utilization;
};
Speed speed_of(const RunReport& report, const PlanUse& use);

std::string report_text(const RunReport& report);
nlohmann::ordered_json report_json(const RunReport& report);
std::string report_svg(const RunReport& report);

// report.txt, report.json and report.svg. False with the error when one could not be written.
bool write_report(const RunReport& report, const std::string& folder, std::string* error);

}  // namespace spillway::trainer
