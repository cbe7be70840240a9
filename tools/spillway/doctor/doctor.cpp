// `spillway doctor`: what works on this machine, by trial, and what to do about what does not.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/command_line/option_checks.h"
#include "tools/spillway/doctor/trials.h"
#include "tools/spillway/report/text/table.h"

namespace spillway::tools {
namespace {

using Json = nlohmann::ordered_json;

struct DoctorOptions {
  bool json = false, answer = false;
  double seconds = 120;
};

const char* text_of(TrialState state) {
  switch (state) {
    case TrialState::kOk:
      return "ok";
    case TrialState::kLimited:
      return "limited";
    case TrialState::kMissing:
      break;
  }
  return "missing";
}

std::vector<Trial> all_trials(double seconds) {
  std::vector<Trial> trials = try_for(seconds, kDriverTrial, try_driver);
  const auto add = [&](const std::vector<Trial>& more) {
    trials.insert(trials.end(), more.begin(), more.end());
  };
  add(try_programs(seconds));
  add(try_for(seconds, "ledger of processes", try_processes));
  add(try_for(seconds, "limits of the system", try_limits));
  return trials;
}

bool works(const std::vector<Trial>& trials) {
  return std::ranges::none_of(trials, [](const Trial& trial) {
    const bool needed =
        trial.name == kDriverTrial || trial.name == kPreloadTrial || trial.name == kSettingsTrial;
    return needed && trial.state == TrialState::kMissing;
  });
}

std::string conclusion(const std::vector<Trial>& trials) {
  return works(trials) ? "spillway run can work here" : "spillway run cannot work here: see what is missing";
}

std::string doctor_text(const std::vector<Trial>& trials) {
  Table table({Align::kLeft, Align::kLeft, Align::kLeft});
  for (const Trial& trial : trials) {
    table.add({text_of(trial.state), trial.name, trial.found});
    if (!trial.advice.empty()) table.add({"", "", "-> " + trial.advice});
  }
  return table.text("") + "\n" + conclusion(trials) + "\n";
}

std::string doctor_json(const std::vector<Trial>& trials) {
  Json list = Json::array();
  for (const Trial& trial : trials)
    list.push_back({{"name", trial.name},
                    {"state", text_of(trial.state)},
                    {"found", trial.found},
                    {"advice", trial.advice.empty() ? Json() : Json(trial.advice)}});
  return Json{{"works", works(trials)}, {"trials", list}}.dump(1, ' ', false,
                                                               Json::error_handler_t::replace) +
         "\n";
}

int doctor(const DoctorOptions& options) {
  if (options.answer) return answer_trial();
  const std::vector<Trial> trials = all_trials(options.seconds);
  std::fputs((options.json ? doctor_json(trials) : doctor_text(trials)).c_str(), stdout);
  return works(trials) ? kSuccess : kCanNotWork;
}

std::function<int()> declare_doctor(CLI::App& app, const Words&) {
  auto options = std::make_shared<DoctorOptions>();
  app.add_flag("--json", options->json, "The findings as data");
  app.add_option("--deadline", options->seconds, "Seconds after which a trial is ended")
      ->capture_default_str()
      ->check(number_between(0.1, 3600.0));
  app.add_flag("--answer", options->answer)->group("");  // the program of a trial
  return [options] { return doctor(*options); };
}

}  // namespace

Command doctor_command() {
  return {"doctor", "Try what works on this machine", "spillway doctor", false, declare_doctor};
}

}  // namespace spillway::tools
