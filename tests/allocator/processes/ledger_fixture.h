// Members of a ledger of the test's own, in this process and in others.
#pragma once
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "processes/ledger.h"

namespace spillway {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
inline constexpr DeviceUuid kCard{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};

inline LedgerEntry entry_of(uint64_t value) {
  LedgerEntry entry;
  std::snprintf(entry.program, sizeof entry.program, "program %llu", static_cast<unsigned long long>(value));
  entry.failures = value;
  entry.device_count = 1;
  entry.devices[0] = {.uuid = kCard, .held_bytes = value, .cached_bytes = value, .spare_bytes = value};
  return entry;
}

class LedgerTest : public testing::Test {
 protected:
  void SetUp() override { name_ = "spillway-test-" + std::to_string(::getpid()); }
  void TearDown() override {
    for (const pid_t child : children_) end(child);
    ::shm_unlink(("/" + name_).c_str());
  }

  std::unique_ptr<Ledger> join() {
    std::string why_not;
    std::unique_ptr<Ledger> ledger = Ledger::join(name_, &why_not);
    EXPECT_NE(ledger, nullptr) << why_not;
    return ledger;
  }

  // A member that gives `bytes` to whoever asks, after `delay`, until it is killed, and may show itself; back
  // when it has joined.
  pid_t start_peer(uint64_t bytes, milliseconds delay = milliseconds(0), bool shows = false) {
    int joined[2];
    EXPECT_EQ(::pipe(joined), 0);
    const pid_t pid = ::fork();
    if (pid == 0) {
      std::string why_not;
      const std::unique_ptr<Ledger> ledger = Ledger::join(name_, &why_not);
      const char ready = ledger != nullptr ? 1 : 0;
      if (::write(joined[1], &ready, 1) != 1 || ready == 0) ::_exit(1);
      for (;;) {
        Ledger::Need need;
        if (shows) ledger->show(entry_of(bytes));
        if (!ledger->wait_for_need(&need, milliseconds(500))) continue;
        std::this_thread::sleep_for(delay);
        ledger->answer(need, need.device == kCard ? bytes : 0);
      }
    }
    char ready = 0;
    EXPECT_EQ(::read(joined[0], &ready, 1), 1);
    EXPECT_EQ(ready, 1);
    ::close(joined[0]);
    ::close(joined[1]);
    children_.push_back(pid);
    return pid;
  }

  void end(pid_t pid) {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    std::erase(children_, pid);
  }

  // Members that wait for answers.
  size_t asking() const {
    std::vector<LedgerMember> members;
    std::string why_not;
    read_ledger(name_, &members, &why_not);
    return static_cast<size_t>(
        std::ranges::count_if(members, [](const auto& it) { return it.need_bytes != 0; }));
  }

  static uint64_t ask(Ledger& ledger, milliseconds most = milliseconds(2000)) {
    return ledger.ask(kCard, 1000, Clock::now() + most, [] { return false; });
  }

  std::string name_;
  std::vector<pid_t> children_;
};

inline void wait_until(const std::function<bool()>& condition) {
  for (const auto deadline = Clock::now() + milliseconds(10000); !condition() && Clock::now() < deadline;)
    std::this_thread::sleep_for(milliseconds(1));
  EXPECT_TRUE(condition());
}

}  // namespace spillway
