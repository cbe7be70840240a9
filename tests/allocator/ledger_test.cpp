// The ledger between real processes: asked and answered, and killed at any moment.
#include "spillway/allocator/ledger.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <random>
#include <thread>
#include <vector>

namespace spillway {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
constexpr DeviceUuid kCard{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};

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

  // A member that gives `bytes` to whoever asks, after `delay`, until it is killed; back when it has joined.
  pid_t start_peer(uint64_t bytes, milliseconds delay = milliseconds(0)) {
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

  static uint64_t ask(Ledger& ledger, milliseconds most = milliseconds(2000)) {
    return ledger.ask(kCard, 1000, Clock::now() + most, [] { return false; });
  }

  std::string name_;
  std::vector<pid_t> children_;
};

TEST_F(LedgerTest, PeersAnswerWithWhatTheyGave) {
  const auto ledger = join();
  EXPECT_EQ(ledger->peers(), 0u);
  EXPECT_EQ(ask(*ledger), 0u) << "nobody is there";
  start_peer(300);
  start_peer(40);
  EXPECT_EQ(ledger->peers(), 2u);
  EXPECT_EQ(ask(*ledger), 340u);
  EXPECT_EQ(ask(*ledger), 340u) << "each need is answered again";
}

TEST_F(LedgerTest, AnswersThatAreEnoughEndTheWait) {
  const auto ledger = join();
  start_peer(300);
  start_peer(40, milliseconds(5000));
  const auto start = Clock::now();
  const uint64_t given = ledger->ask(kCard, 1000, start + milliseconds(4000), [] { return true; });
  EXPECT_EQ(given, 300u);
  EXPECT_LT(Clock::now() - start, milliseconds(2000));
}

TEST_F(LedgerTest, ThatNobodyAnswersEndsAtTheDeadline) {
  const auto ledger = join();
  start_peer(300, milliseconds(60000));
  const auto start = Clock::now();
  EXPECT_EQ(ask(*ledger, milliseconds(300)), 0u);
  EXPECT_GE(Clock::now() - start, milliseconds(290));
  EXPECT_LT(Clock::now() - start, milliseconds(1500));
}

TEST_F(LedgerTest, AKilledPeerIsNoPeerAndIsNotWaitedFor) {
  const auto ledger = join();
  const pid_t slow = start_peer(300, milliseconds(60000));
  start_peer(40);
  std::thread killer([&] {
    std::this_thread::sleep_for(milliseconds(200));
    ::kill(slow, SIGKILL);
  });
  const auto start = Clock::now();
  EXPECT_EQ(ask(*ledger, milliseconds(20000)), 40u);
  EXPECT_LT(Clock::now() - start, milliseconds(2000)) << "also while the dead one is a zombie";
  killer.join();
  EXPECT_EQ(ledger->peers(), 1u);
  end(slow);
  EXPECT_EQ(ledger->peers(), 1u);
}

TEST_F(LedgerTest, TheSlotsOfTheDeadAreUsedAgain) {
  const auto ledger = join();
  for (int i = 0; i < 100; ++i) end(start_peer(1));  // more than there are slots
  EXPECT_EQ(ledger->peers(), 0u);
  start_peer(7);
  EXPECT_EQ(ask(*ledger), 7u);
}

TEST_F(LedgerTest, ALeavingMemberIsGone) {
  const auto ledger = join();
  {
    const auto other = join();
    EXPECT_EQ(ledger->peers(), 1u);
  }
  EXPECT_EQ(ledger->peers(), 0u);
}

TEST_F(LedgerTest, AForkedChildIsNoMember) {
  const auto ledger = join();
  start_peer(300);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(ledger->peers() == 0 && ask(*ledger) == 0 ? 0 : 1);
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(ask(*ledger), 300u) << "and the parent still is";
}

TEST_F(LedgerTest, SomethingElseOfThatNameIsReplaced) {
  for (const size_t size : {size_t{0}, size_t{10}, size_t{1} << 20}) {
    const int file = ::shm_open(("/" + name_).c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
    ASSERT_GE(file, 0);
    const std::string garbage(size, '\x7f');
    ASSERT_EQ(::write(file, garbage.data(), garbage.size()), static_cast<ssize_t>(size));
    ::close(file);
    const auto ledger = join();
    start_peer(300);
    EXPECT_EQ(ask(*ledger), 300u);
    end(children_.back());
  }
}

TEST_F(LedgerTest, ASegmentOfAnotherLayoutIsReplaced) {
  join();
  const int file = ::shm_open(("/" + name_).c_str(), O_RDWR, 0600);
  const uint32_t other_layout = 999;
  ASSERT_EQ(::pwrite(file, &other_layout, sizeof other_layout, 8), static_cast<ssize_t>(sizeof other_layout));
  ::close(file);
  const auto ledger = join();
  start_peer(300);
  EXPECT_EQ(ask(*ledger), 300u);
}

TEST_F(LedgerTest, WhatOthersMayUseIsRefused) {
  const int file = ::shm_open(("/" + name_).c_str(), O_RDWR | O_CREAT, 0600);
  ASSERT_GE(file, 0);
  ASSERT_EQ(::fchmod(file, 0666), 0);
  ::close(file);
  std::string why_not;
  EXPECT_EQ(Ledger::join(name_, &why_not), nullptr);
  EXPECT_NE(why_not.find("others may use it"), std::string::npos) << why_not;
}

// Whoever dies, whenever: nobody waits for it, and no need of the living is lost.
TEST_F(LedgerTest, KillsAtRandomMomentsHangNobody) {
  const auto ledger = join();
  std::mt19937 random(17);
  start_peer(1);
  for (int kill = 0; kill < 60; ++kill) {
    const pid_t victim = start_peer(1000, milliseconds(random() % 3));
    std::thread killer([&, wait = random() % 2000] {
      std::this_thread::sleep_for(std::chrono::microseconds(wait));
      ::kill(victim, SIGKILL);
    });
    const auto start = Clock::now();
    const uint64_t given = ask(*ledger, milliseconds(10000));
    EXPECT_LT(Clock::now() - start, milliseconds(2000));
    EXPECT_TRUE(given == 1 || given == 1001) << given;
    killer.join();
    end(victim);
  }
  EXPECT_EQ(ledger->peers(), 1u);
}

}  // namespace
}  // namespace spillway
