// Trainings one after the other, each in a process of its own: LibTorch starts once, and a training is a fork
// of that. Reads a line for each from its input: a folder and the settings, between tabs. The folder has what
// spillway-train would print (output) and its --json (result.json). Answers with a line, the training's exit
// code.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <iostream>
#include <sstream>

#include "trainer/app/trainer.h"

namespace {

std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields;
  std::istringstream text(line);
  for (std::string field; std::getline(text, field, '\t');) fields.push_back(field);
  return fields;
}

int train_one(const std::string& folder, const std::vector<std::string>& settings) {
  using namespace spillway::trainer;
  if (!std::freopen((folder + "/output").c_str(), "w", stdout) || ::dup2(STDOUT_FILENO, STDERR_FILENO) < 0)
    return kExitError;
  std::string error;
  const auto config = read_config("configs/tiny.toml", settings, &error);
  if (!config) {
    std::fprintf(stderr, "%s\n", error.c_str());
    return kExitUsage;
  }
  const Results results = train(*config, {});
  std::fputs(to_table(results).c_str(), stdout);
  std::ofstream(folder + "/result.json") << to_json(results);
  return results.exit_code;
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    const std::vector<std::string> fields = fields_of(line);
    const pid_t child = ::fork();
    if (child == 0) std::exit(train_one(fields[0], {fields.begin() + 1, fields.end()}));
    int status = 0;
    if (child < 0 || ::waitpid(child, &status, 0) != child) return 1;
    std::cout << (WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status)) << std::endl;
  }
}
