// The signals that ask a run to end: SIGINT, SIGTERM (Slurm, Kubernetes, systemd, torchrun) and SIGHUP (a
// terminal that is closed). The run ends after its step, with a checkpoint.
//
// Thread-safety: any thread, and the handler. Errors: none.
#pragma once
#include <atomic>

namespace spillway::trainer {

struct Stop {
  std::atomic<int> signal{0};           // that has come first; 0: none
  std::atomic<bool> is_awaited{false};  // the run looks at it; before that there is nothing to save
};

// As a shell has it: 130 of SIGINT, 143 of SIGTERM, 129 of SIGHUP.
constexpr int exit_code_of_signal(int signal) {
  return 128 + signal;
}
constexpr bool is_of_signal(int exit_code) {
  return exit_code > 128;
}

// From now on these signals set `stop`, which lives as long as the process. One that comes before the run
// awaits it ends the process at once, and so does a second one, with two exceptions. A launcher and a group
// of processes pass SIGTERM or SIGHUP on to processes that have had it already: what comes within a second of
// the first one is no second one. A launcher of ranks sends SIGTERM to the others as soon as one has ended:
// for ranks, a second SIGTERM or SIGHUP does nothing.
void listen_for_signals(Stop* stop, bool is_alone);

}  // namespace spillway::trainer
