// The one mechanism for sub-commands: each is a `Command` in the list of main.cpp; `run_command_line` parses,
// refuses what it does not know with the nearest name, and runs one.
//
// Errors: text on standard error, and an ExitCode. A sub-command that replaces the process passes its exit
// code through.
#pragma once
#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace spillway::tools {

enum ExitCode {
  kSuccess = 0,
  kUsageError = 2,
  kUnreadableTrace = 3,  // or `top`: the ledger; `estimate`, `plan`: the model's file
  kUnwritable = 4,       // an output could not be written
  kCanNotWork = 5,       // doctor: `run` in its default mode cannot work on this machine
  kDoesNotFit = 20,  // rehearse: the program ended because a request for memory failed; plan: no plan fits
  kRanOutAndWentOn = 21,  // rehearse: requests failed, and the program dealt with it
  kOverBudget = 22,       // check: the peak is over the budget, or over the baseline's
  kNoDevice = 23,         // rehearse: the program ended well, and used no device
  kNoKernels = 24,        // rehearse: the program has no code for this kind of card
  kCannotRun = 126,       // as env(1): found, but it cannot be run
  kNotFound = 127,        // as env(1)
};

inline constexpr const char* kExitCodes =
    "Exit codes: 0 success, and for `rehearse` and `check` that it fits; 2 wrong usage, or a baseline of\n"
    "other settings; 3 the trace cannot be read, for `top` the ledger, for `estimate` and `plan` the\n"
    "model's file; 4 an output cannot be written;\n"
    "5 `doctor`: `run` cannot work here; 20 `rehearse`, `plan`: it does not fit; 21 `rehearse`: it ran out "
    "of\n"
    "memory and went on; 22 `check`: over the budget or the baseline; 23 `rehearse`: no device was used;\n"
    "24 `rehearse`: the program has no kernels for this card; 126 the command cannot be run; 127 no such\n"
    "command; 130, 143 `rehearse`, `check`: stopped by SIGINT, SIGTERM. Otherwise the exit code of the\n"
    "command that `run`, `simulate`, `rehearse` or `check` runs: where that is one of these codes, the\n"
    "report says so.";

// What stands behind "--".
using Words = std::vector<std::string>;

struct Command {
  const char* name;
  const char* description;
  const char* example;
  bool takes_command;  // a command to run behind "--"
  // Declares the options on `app`; what it returns runs once they are parsed, and gives the exit code.
  std::function<int()> (*declare)(CLI::App& app, const Words& command);
};

Command check_command();
Command diff_command();
Command doctor_command();
Command estimate_command();
Command plan_command();
Command rehearse_command();
Command replay_command();
Command report_command();
Command run_command();
Command simulate_command();
Command top_command();

int run_command_line(const std::vector<Command>& commands, int argc, char** argv);

// Prints "spillway: <text>" to standard error and returns `code`.
int fail(int code, const std::string& text);
// Writes a result to the standard output. What a file made of names does nothing to a terminal.
void print_result(const std::string& text);

}  // namespace spillway::tools
