// spillway-train --config x.toml
#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>

#include "base/command_line/option_checks.h"
#include "trainer/app/page.h"
#include "trainer/app/run/stop.h"
#include "trainer/app/trainer.h"

namespace {

spillway::trainer::Stop stop;

// results.json, and beside it results.rank-1.json.
std::string path_of_rank(const std::string& path, uint32_t rank) {
  if (rank == 0) return path;
  const std::filesystem::path whole(path);
  return whole.parent_path() /
         (whole.stem().string() + ".rank-" + std::to_string(rank) + whole.extension().string());
}

// Before anything asks for the GPUs.
void see_own_gpu(const spillway::trainer::Launch& launch) {
  if (launch.is_alone()) return;
  const char* now = std::getenv("CUDA_VISIBLE_DEVICES");
  // NOLINTNEXTLINE(concurrency-mt-unsafe): no other thread runs yet
  ::setenv("CUDA_VISIBLE_DEVICES", own_gpu(launch, now == nullptr ? "" : now).value_or("none").c_str(), 1);
}

// False: the results could not be written.
bool tell(const spillway::trainer::Results& results, uint32_t rank, const std::string& json_path) {
  using namespace spillway::trainer;
  if (rank == 0)
    std::fputs(to_table(results).c_str(), results.exit_code == kExitDone ? stdout : stderr);
  else if (results.exit_code != kExitDone)
    // One line, and only of what went wrong: the first rank has the table.
    std::fprintf(stderr, "spillway-train: rank %u: %s\n", rank, results.verdict.c_str());
  if (json_path.empty() || std::ofstream(json_path) << to_json(results) << std::flush) return true;
  std::fprintf(stderr, "spillway-train: cannot write %s\n", json_path.c_str());
  return false;
}

int run(int argc, char** argv) {
  using namespace spillway::trainer;
  CLI::App app(
      "Trains a GPT-2, a Llama or a T5 on a text, and goes on when device memory runs out.\n"
      "Exit codes: 0 done, 1 error, 2 usage or configuration, 17 out of memory and no plan left, on this "
      "rank or another one (with a checkpoint if a step was begun), 18 another rank failed or this one "
      "hangs, 130, 143 and 129 ended by SIGINT, SIGTERM and SIGHUP (with a checkpoint if a step was done).");
  std::string config_path, json_path, device, limit;
  std::vector<std::string> overrides;
  TrainOptions options;
  app.add_option("--config", config_path, "the run's configuration, TOML");
  app.add_option("--set", overrides, "section.key=value: overrides a key of the configuration")
      ->allow_extra_args(false);
  app.add_option("--resume", options.resume, "the folder of the checkpoint to go on from");
  app.add_option("--device", device, "cuda or cpu, in place of run.device");
  app.add_option("--limit", limit, "bytes of each device, such as 2GiB, in place of run.limit");
  app.add_option("--json", json_path, "writes the results to this file");
  app.add_flag("--quiet", options.quiet, "only the table at the end on the console");
  try {
    app.parse(argc, argv);
    // Behind the parsing, which names an option that is misspelt.
    if (config_path.empty()) throw CLI::RequiredError("--config");
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitDone : kExitUsage;
  }
  if (const std::string wrong = spillway::wrong_empty_option(app); !wrong.empty()) {
    std::fprintf(stderr, "spillway-train: %s\n", wrong.c_str());
    return kExitUsage;
  }
  if (!device.empty()) overrides.push_back("run.device=\"" + device + "\"");
  if (app.count("--limit") > 0) overrides.push_back("run.limit=\"" + limit + "\"");
  std::string error;
  const auto config = read_config(config_path, overrides, &error);
  if (!config) {
    std::fprintf(stderr, "spillway-train: %s\n", error.c_str());
    return kExitUsage;
  }
  const auto launch = launch_of([](const char* name) -> const char* { return std::getenv(name); }, &error);
  if (!launch) {
    std::fprintf(stderr, "spillway-train: %s\n", error.c_str());
    return kExitUsage;
  }
  options.launch = *launch;
  see_own_gpu(*launch);
  if (!json_path.empty()) json_path = path_of_rank(json_path, launch->rank);
  // Now, not after hours of training; what an earlier run wrote there stays until there is something new.
  if (!json_path.empty() && !std::ofstream(json_path, std::ios::app)) {
    std::fprintf(stderr, "spillway-train: --json %s cannot be written\n", json_path.c_str());
    return kExitUsage;
  }
  options.stop = &stop;
  listen_for_signals(&stop, launch->is_alone());
  // c10d writes to connections whose other end may be gone; what it does then is an error that has a text.
  if (!launch->is_alone()) std::signal(SIGPIPE, SIG_IGN);
  options.tell_when_held_up = [&](const Results& results) { tell(results, launch->rank, json_path); };
  Results results = train(*config, options);
  if (results.exit_code == kExitOutOfMemory) results.page = write_report_page(results.trace);
  const int code = tell(results, launch->rank, json_path) ? results.exit_code : kExitError;
  // What other ranks hold up is still there, with threads of its own.
  if (results.incident) std::fflush(nullptr), std::_Exit(code);
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "spillway-train: %s\n", error.what());
    return spillway::trainer::kExitError;
  }
}
