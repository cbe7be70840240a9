#include "trainer/app/run/stop.h"

#include <signal.h>
#include <time.h>

#include <cstdint>
#include <cstdlib>

#include "trainer/app/progress.h"

namespace spillway::trainer {
namespace {

constexpr int64_t kSameSignalMs = 1000;  // in which one signal may come twice

std::atomic<Stop*> listening{nullptr};
std::atomic<bool> ranks_follow{false};
std::atomic<int64_t> first_at_ms{0};
static_assert(std::atomic<int64_t>::is_always_lock_free && std::atomic<Stop*>::is_always_lock_free);

// As std::chrono has it, by a function that a handler may call.
int64_t now_ms() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t(now.tv_sec) * 1000 + now.tv_nsec / 1000000;
}

// SIGINT comes from a person, who means it each time.
bool is_passed_on(int signal) {
  return signal != SIGINT && (ranks_follow || now_ms() - first_at_ms < kSameSignalMs);
}

void on_signal(int signal) {
  Stop* const stop = listening;
  if (stop->is_awaited) {
    int none = 0;
    if (stop->signal.compare_exchange_strong(none, signal)) {
      first_at_ms = now_ms();
      return;
    }
    if (is_passed_on(signal)) return;
  }
  wipe_progress();
  std::_Exit(exit_code_of_signal(signal));
}

}  // namespace

void listen_for_signals(Stop* stop, bool is_alone) {
  listening = stop;
  ranks_follow = !is_alone;
  struct sigaction take{};
  take.sa_handler = on_signal;
  take.sa_flags = SA_RESTART;
  // No two of them at once.
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::sigaddset(&take.sa_mask, signal);
  ::sigaction(SIGINT, &take, nullptr);
  ::sigaction(SIGTERM, &take, nullptr);
  struct sigaction before{};
  ::sigaction(SIGHUP, nullptr, &before);
  if (before.sa_handler != SIG_IGN) ::sigaction(SIGHUP, &take, nullptr);  // nohup ignores it
}

}  // namespace spillway::trainer
