// `spillway top`: who holds what on the machine's devices, from the ledger of the processes under Spillway.
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <cmath>
#include <cstdio>
#include <ctime>
#include <memory>

#include "base/command_line/option_checks.h"
#include "processes/ledger.h"
#include "tools/spillway/command.h"
#include "tools/spillway/top/render.h"

namespace spillway::tools {
namespace {

struct TopOptions {
  bool once = false, json = false;
  double seconds = 1;
};

std::string missing_text(LedgerRead read, const std::string& why_not) {
  if (read == LedgerRead::kBroken)
    return "the ledger cannot be read (" + why_not + "); the next process under 'spillway run' replaces it";
  return "the ledger cannot be read: " + why_not;
}

// In place on a terminal, one block after the other elsewhere.
void print(const std::string& text, bool redraw, bool first) {
  winsize size{};
  if (!redraw) {
    std::printf("%s%s", first ? "" : "\n", text.c_str());
  } else if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 2 && size.ws_col > 2) {
    std::printf("\x1b[H\x1b[2J%s", cut_to_screen(text, size.ws_row, size.ws_col).c_str());
  } else {
    std::printf("\x1b[H\x1b[2J%s", text.c_str());
  }
  std::fflush(stdout);
}

// True when the user ends it meanwhile.
bool stopped_within(const sigset_t& stops, double seconds) {
  timespec time{};
  time.tv_sec = static_cast<time_t>(seconds);
  time.tv_nsec = static_cast<long>((seconds - std::floor(seconds)) * 1e9);
  return ::sigtimedwait(&stops, nullptr, &time) > 0;
}

int top(const TopOptions& options) {
  const std::string name = ledger_name();
  if (name.empty()) return fail(kUsageError, "top: SPILLWAY_LEDGER is off: there is no ledger to look at");
  sigset_t stops;
  sigemptyset(&stops);
  sigaddset(&stops, SIGINT);
  sigaddset(&stops, SIGTERM);
  ::sigprocmask(SIG_BLOCK, &stops, nullptr);
  std::string told;  // to who reads data: why there is none
  for (bool first = true;; first = false) {
    std::vector<LedgerMember> members;
    std::string why_not;
    const LedgerRead read = read_ledger(name, &members, &why_not);
    const bool wrong = read == LedgerRead::kRefused || read == LedgerRead::kBroken;
    const std::string fault = wrong ? missing_text(read, why_not) : "";
    if (wrong && options.once) return fail(kUnreadableTrace, "top: " + fault);
    const Overview overview = overview_of(std::move(members));
    if (options.json && wrong) {
      if (fault != told) fail(kUnreadableTrace, "top: " + fault);
      told = fault;
    } else if (options.json) {
      std::fputs(top_json(overview).c_str(), stdout);
    } else {
      print(wrong ? fault + "\n" : top_text(overview), !options.once && ::isatty(STDOUT_FILENO) == 1, first);
    }
    if (std::fflush(stdout) != 0 || options.once || stopped_within(stops, options.seconds)) return kSuccess;
  }
}

std::function<int()> declare_top(CLI::App& app, const Words&) {
  auto options = std::make_shared<TopOptions>();
  app.add_flag("--once", options->once, "Look once and end");
  app.add_flag("--json", options->json, "One JSON object a line");
  app.add_option("--interval", options->seconds, "Seconds between two looks")
      ->capture_default_str()
      ->check(number_between(0.1, 3600.0));
  return [options] { return top(*options); };
}

}  // namespace

Command top_command() {
  return {"top", "Show which process holds what on each GPU", "spillway top --once", false, declare_top};
}

}  // namespace spillway::tools
