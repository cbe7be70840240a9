// spillway-train itself, in a process of its own.
#pragma once
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

namespace spillway::trainer {

inline pid_t start_program(const std::vector<std::string>& words) {
  const char* build = std::getenv("SPILLWAY_BUILD_DIR");
  const std::string program = std::string(build ? build : ".") + "/bin/spillway-train";
  std::vector<char*> arguments{const_cast<char*>(program.c_str())};
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const pid_t process = ::fork();
  if (process == 0) {
    ::execv(arguments[0], arguments.data());
    ::_exit(127);
  }
  return process;
}

// -1: a signal has ended it.
inline int exit_code_of(pid_t process) {
  int status = 0;
  ::waitpid(process, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace spillway::trainer
