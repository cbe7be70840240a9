#include "simulator/driver/process/watchdog.h"

#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "simulator/driver/entry/call.h"

namespace spillway::simulator {
namespace {

using std::chrono::steady_clock;

constexpr char kName[] = "pt_nccl_watchdg";
constexpr uint64_t kPollNs = 100'000'000;  // its own interval
constexpr auto kIdle = std::chrono::seconds(3);
constexpr auto kPatience = std::chrono::seconds(5);

bool name_begins_with(const char* start) {
  char name[16] = {};
  return prctl(PR_GET_NAME, name) == 0 && std::strncmp(name, start, std::strlen(start)) == 0;
}

// Whether this process has one.
bool any_watchdog() {
  std::error_code error;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", error)) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    if (name == kName) return true;
  }
  return false;
}

// Nobody but threads that look on has called the driver for a while, except to ask it something.
bool idle() {
  thread_local uint64_t calls = 0;
  thread_local steady_clock::time_point since = steady_clock::now();
  const uint64_t made = machine().counters.acting_calls;
  if (made != calls) {
    calls = made;
    since = steady_clock::now();
  }
  return steady_clock::now() - since >= kIdle;
}

}  // namespace

Watchdog::Finding& Watchdog::finding() {
  thread_local Finding last;
  return last;
}

bool is_watchdog() {
  thread_local const bool is = name_begins_with(kName);
  return is;
}

bool is_backward_thread() {
  thread_local const bool is = name_begins_with("pt_autograd_");
  return is;
}

bool is_beside() {
  thread_local const bool is = name_begins_with("spillway-host");
  return is;
}

bool Watchdog::may_see(uint64_t time) {
  return time <= std::max(shown_, machine().clock.waited()) || idle();
}

void Watchdog::found(uint64_t stream, uint64_t time) {
  finding() = {stream, time};
}

void Watchdog::calls_again() {
  const Finding found = std::exchange(finding(), {});
  if (found.stream == 0) return;
  if (const auto watched = streams_.find(found.stream); watched != streams_.end()) {
    watched->second.seen = std::max(watched->second.seen, found.time);
    watched->second.nobody_looks = false;
    changed_.notify_all();
  }
}

void Watchdog::expect(uint64_t stream, uint64_t end) {
  if (stream == 0 || !machine().config.awaits_watchdog) return;
  Watched& watched = streams_[stream];
  if (!watched.nobody_looks) watched.ends.push_back(end);
}

bool Watchdog::has_seen(const Finding& awaited) const {
  const auto watched = streams_.find(awaited.stream);
  return watched == streams_.end() || watched->second.seen >= awaited.time;
}

std::vector<Watchdog::Finding> Watchdog::take_shown() {
  const Clock& clock = machine().clock;
  shown_ = std::max(shown_, clock.waited());
  if (clock.now() >= shown_ + kPollNs) shown_ = clock.now();
  std::vector<Finding> taken;
  for (auto& [stream, watched] : streams_) {
    const auto hidden = std::upper_bound(watched.ends.begin(), watched.ends.end(), shown_);
    if (hidden == watched.ends.begin()) continue;
    taken.push_back({stream, *std::prev(hidden)});
    watched.ends.erase(watched.ends.begin(), hidden);
  }
  return taken;
}

void Watchdog::await() {
  for (const Finding& awaited : take_shown()) {
    const auto seen = [&] { return has_seen(awaited); };
    if (seen() || (any_watchdog() && changed_.wait_for(*Call::current(), kPatience, seen))) continue;
    if (const auto unseen = streams_.find(awaited.stream); unseen != streams_.end()) {
      unseen->second.nobody_looks = true;
      unseen->second.ends.clear();
    }
  }
}

}  // namespace spillway::simulator
