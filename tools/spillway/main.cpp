#include <cstdio>
#include <exception>

#include "tools/spillway/command.h"

int main(int argc, char** argv) {
  using namespace spillway::tools;
  try {
    return run_command_line(
        {check_command(), rehearse_command(), report_command(), run_command(), simulate_command()}, argc,
        argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "spillway: unexpected: %s\n", error.what());
    return 1;
  }
}
