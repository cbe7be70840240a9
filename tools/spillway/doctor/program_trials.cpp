#include <dlfcn.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tools/spillway/doctor/trials.h"
#include "tools/spillway/library_folders.h"
#include "tools/spillway/run/preload.h"
#include "tools/spillway/run/summary.h"
#include "tools/spillway/units.h"

namespace spillway::tools {
namespace {

using Json = nlohmann::json;

// Imports torch where there is one and says which allocator a tensor of the device came from.
constexpr const char* kTorchProgram = R"(
import json
try:
    import torch
except ImportError as error:
    print(json.dumps({"missing": str(error)}))
else:
    told = {"version": torch.__version__, "device": torch.cuda.is_available()}
    if told["device"]:
        torch.empty(1, device="cuda")
        told["allocator"] = torch.cuda.get_allocator_backend()
    print(json.dumps(told))
)";

constexpr const char* kAnswers[] = {"alone", "preloaded", "preloaded, and called the driver"};

struct Answered {
  ChildAnswer answer;
  RunTotals totals;
  std::string error;  // before anything was started
};

// As `spillway run` would start it, but for itself: no trace, no ledger, no settings of the user's.
Answered run_preloaded(double seconds, const std::string& mode, const Words& command) {
  Answered answered;
  std::string library;
  SharedSummary summary;
  if (!find_preload_library(&library, &answered.error) ||
      !can_be_preloaded(command.front(), &answered.error) || !summary.open(&answered.error))
    return answered;
  Environment environment;
  environment["LD_PRELOAD"] = put_in_front("LD_PRELOAD", library);
  environment["SPILLWAY_MODE"] = mode;
  environment["SPILLWAY_RUN_SUMMARY"] = summary.path();
  environment["SPILLWAY_LEDGER"] = "off";
  for (const char* name : {"SPILLWAY_TRACE", "SPILLWAY_LIMIT", "SPILLWAY_GUARANTEE", "SPILLWAY_STRATEGIES"})
    environment[name] = std::nullopt;
  answered.answer = run_for(seconds, command, environment);
  answered.totals = summary.totals();
  return answered;
}

std::string last_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  const size_t line = text.rfind('\n');
  return line == std::string::npos ? text : text.substr(line + 1);
}

std::string failure_of(const Answered& answered, double seconds) {
  if (!answered.error.empty()) return answered.error;
  const std::string failed = failure_text(answered.answer, seconds);
  return failed.empty() ? "" : failed + ": " + last_line(answered.answer.output);
}

Trial try_program(double seconds) {
  const Answered answered = run_preloaded(
      seconds, "rescue", {std::filesystem::read_symlink("/proc/self/exe"), "doctor", "--answer"});
  const std::string failed = failure_of(answered, seconds);
  if (!failed.empty())
    return {kPreloadTrial, TrialState::kMissing, "a program under it " + failed,
            "build or install Spillway anew; its library needs x86-64 and glibc 2.34"};
  const std::string said = last_line(answered.answer.output);
  if (said == kAnswers[2] && answered.totals.driver_calls == 0)
    return {kPreloadTrial, TrialState::kMissing,
            "a program under it called the driver, and its hooks saw nothing",
            "another preloaded library takes the program's calls first: see LD_PRELOAD"};
  if (said == kAnswers[0])
    return {kPreloadTrial, TrialState::kMissing,
            "a program was started with LD_PRELOAD, and the library is not in it",
            getauxval(AT_SECURE) != 0 ? "spillway itself runs setuid: the loader then preloads nothing"
                                      : "the loader refused it: is the file system mounted noexec?"};
  return {kPreloadTrial, TrialState::kOk,
          "a program under it answered; its hooks saw " +
              count_text(answered.totals.driver_calls, "driver call", "driver calls"),
          ""};
}

std::string find_python() {
  for (const char* name : {"python", "python3"}) {
    const ChildAnswer answer = run_for(30, {"sh", "-c", std::string("command -v ") + name}, {});
    if (answer.in_time && answer.exit_code == 0) return name;
  }
  return "";
}

Trial try_python(double seconds, const std::string& python) {
  const Answered answered =
      run_preloaded(seconds, "rescue", {python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"});
  const std::string failed = failure_of(answered, seconds);
  if (!failed.empty())
    return {"Python", TrialState::kMissing, python + " under the preloaded library " + failed,
            "try it without Spillway: if it works, this is a defect of Spillway's"};
  return {"Python", TrialState::kOk,
          python + " " + last_line(answered.answer.output) + " runs under the preloaded library", ""};
}

Trial judge_torch(const Json& told, const RunTotals& totals) {
  const std::string name = "PyTorch";
  if (told.contains("missing"))
    return {name, TrialState::kLimited, "this Python has none (" + told["missing"].get<std::string>() + ")",
            "activate the environment of your program and ask again, if it uses PyTorch"};
  const std::string version = "PyTorch " + told.value("version", "?");
  if (totals.runtime_major != 0) {
    const std::string older = std::to_string(totals.driver_version / 1000);
    return {name, TrialState::kLimited,
            version + " is of CUDA " + std::to_string(totals.runtime_major) +
                ", and the driver serves CUDA " + older + " only",
            "update the driver, or install a PyTorch for CUDA " + older};
  }
  if (!told.value("device", false))
    return {name, TrialState::kLimited, version + " finds no device, so its allocator could not be tried",
            "see the CUDA driver above, and whether this is a CUDA build of PyTorch"};
  const std::string allocator = told.value("allocator", "?");
  if (allocator == "spillway")
    return {name, TrialState::kOk, version + " took its first tensor from Spillway under --mode replace", ""};
  const std::string why = totals.refusals.empty() ? "" : ": " + totals.refusals.front();
  return {name, TrialState::kLimited, version + " kept its own allocator ('" + allocator + "')" + why,
          "--mode rescue works all the same; for --mode replace use a PyTorch that Spillway is built for"};
}

Trial try_torch(double seconds, const std::string& python) {
  const Answered answered = run_preloaded(seconds, "replace", {python, "-c", kTorchProgram});
  const std::string failed = failure_of(answered, seconds);
  const Json told = Json::parse(last_line(answered.answer.output), nullptr, false);
  if (failed.empty() && told.is_object()) return judge_torch(told, answered.totals);
  return {"PyTorch", TrialState::kMissing,
          "a tensor under --mode replace " + (failed.empty() ? "said nothing" : failed),
          "try the same without Spillway; a slow disk may need a longer --deadline"};
}

}  // namespace

int answer_trial() {
  const bool preloaded = dlsym(RTLD_DEFAULT, "spillway_unhooked_dlsym") != nullptr;
  bool called = false;
  if (void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL); driver != nullptr) {
    const auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
    if (init != nullptr) called = init(0) == 0;
  }
  std::printf("%s\n", kAnswers[preloaded ? 1 + (called ? 1 : 0) : 0]);
  return kSuccess;
}

std::vector<Trial> try_programs(double seconds) {
  std::vector<Trial> trials{try_program(seconds)};
  const std::string python = find_python();
  if (python.empty()) {
    trials.push_back({"Python", TrialState::kLimited, "there is no python or python3 on the PATH",
                      "activate the environment of your program and ask again, if it is in Python"});
    return trials;
  }
  trials.push_back(try_python(seconds, python));
  if (trials.back().state == TrialState::kOk) trials.push_back(try_torch(seconds, python));
  return trials;
}

}  // namespace spillway::tools
