#include <cstdio>
#include <exception>

#include "tools/spillway/command.h"

int main(int argc, char** argv) {
  using namespace spillway::tools;
  try {
    const int code = run_command_line({check_command(), diff_command(), doctor_command(), estimate_command(),
                                       plan_command(), rehearse_command(), replay_command(), report_command(),
                                       run_command(), simulate_command(), top_command()},
                                      argc, argv);
    return std::fflush(stdout) == 0 && std::ferror(stdout) == 0
               ? code
               : fail(kUnwritable, "the standard output cannot be written");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "spillway: unexpected: %s\n", error.what());
    return 1;
  }
}
