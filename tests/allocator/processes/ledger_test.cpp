// The ledger between real processes: asked and answered in order, and killed at any moment.
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <utility>

#include "base/process_identity.h"
#include "tests/allocator/processes/ledger_fixture.h"

namespace spillway {
namespace {

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

// It is replaced by this test once more, which finds the ledger's name.
TEST_F(LedgerTest, AProgramThatIsReplacedLeavesNoMember) {
  constexpr const char* kName = "SPILLWAY_TEST_LEDGER";
  if (const char* name = std::getenv(kName)) {
    name_ = name;
    const auto ledger = join();
    EXPECT_EQ(ledger->peers(), 0u) << "its own ghost";
    const auto start = Clock::now();
    ask(*ledger, milliseconds(60000));
    EXPECT_LT(Clock::now() - start, milliseconds(30000)) << "the ghost was waited for";
    return;
  }
  const pid_t child = ::fork();
  if (child == 0) {
    const auto ledger = join();
    ::setenv(kName, name_.c_str(), 1);
    ::execl("/proc/self/exe", "ledger_test", "--gtest_filter=LedgerTest.AProgramThatIsReplacedLeavesNoMember",
            nullptr);
    ::_exit(1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST_F(LedgerTest, ALeavingMemberIsGone) {
  const auto ledger = join();
  {
    const auto other = join();
    EXPECT_EQ(ledger->peers(), 1u);
  }
  EXPECT_EQ(ledger->peers(), 0u);
}

TEST_F(LedgerTest, MembersThatAreWokenWaitForNoNeed) {
  const auto ledger = join();
  std::atomic<bool> waits = true;
  std::thread waker([&] {
    while (waits) {
      ledger->wake_members();
      std::this_thread::sleep_for(milliseconds(1));
    }
  });
  Ledger::Need need;
  const auto start = Clock::now();
  EXPECT_FALSE(ledger->wait_for_need(&need, milliseconds(60000)));
  EXPECT_LT(Clock::now() - start, milliseconds(30000));
  waits = false;
  waker.join();
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

// In a place of its own for mounts, where /dev/shm has one page. Root alone may, and mostly not in
// containers; of what every user may do LargerThanAFileMayBeIsNotJoined is left there.
class LedgerWithoutRoom : public LedgerTest {
 protected:
  static constexpr int kForbidden = 77;
  void SetUp() override {
    LedgerTest::SetUp();
    const int status = with_full_shared_memory([] { return true; });
    if (WIFEXITED(status) && WEXITSTATUS(status) == kForbidden) GTEST_SKIP() << "no mounts of its own";
  }
  // Ends with what `use` says, as waitpid tells it.
  static int with_full_shared_memory(const std::function<bool()>& use) {
    const pid_t child = ::fork();
    if (child == 0) {
      if (::unshare(CLONE_NEWNS) != 0 || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
          ::mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=4k") != 0)
        ::_exit(kForbidden);
      ::_exit(use() ? 0 : 1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return status;
  }
};

TEST_F(LedgerWithoutRoom, ThatHasNoRoomIsNotJoined) {
  const int status = with_full_shared_memory([&] {
    std::string why_not;
    const bool joined = Ledger::join(name_, &why_not) != nullptr;
    return !joined && why_not.find("No space left") != std::string::npos &&
           ::shm_open(("/" + name_).c_str(), O_RDWR, 0) < 0;
  });
  EXPECT_EQ(status, 0) << "a signal, or it was joined, or left behind";
}

TEST_F(LedgerWithoutRoom, WhoseMemoryWasNotAllTakenIsNotJoinedWhereThereIsNoRoom) {
  const int status = with_full_shared_memory([&] {
    const int file = ::shm_open(("/" + name_).c_str(), O_RDWR | O_CREAT, 0600);
    if (::ftruncate(file, static_cast<off_t>(ledger_bytes())) != 0) return false;
    std::string why_not;
    return Ledger::join(name_, &why_not) == nullptr && why_not.find("No space left") != std::string::npos;
  });
  EXPECT_EQ(status, 0);
}

TEST_F(LedgerWithoutRoom, AFileWithoutRoomBecomesNone) {
  const int status = with_full_shared_memory([] {
    const std::string path = "/dev/shm/ledger";
    ::close(::open(path.c_str(), O_RDWR | O_CREAT, 0600));
    std::string why_not;
    return !make_ledger(path, &why_not) && why_not.find("No space left") != std::string::npos;
  });
  EXPECT_EQ(status, 0);
}

TEST_F(LedgerTest, LargerThanAFileMayBeIsNotJoined) {
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit small{4096, 4096};
    ::setrlimit(RLIMIT_FSIZE, &small);
    std::string why_not;
    ::_exit(Ledger::join(name_, &why_not) == nullptr && !why_not.empty() ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0) << "SIGXFSZ, or it was joined";
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

// A file of memory that has no name but through this process.
class FileOfMemory {
 public:
  FileOfMemory() : descriptor_(::memfd_create("ledger", MFD_CLOEXEC)) {}
  ~FileOfMemory() { ::close(descriptor_); }
  FileOfMemory(const FileOfMemory&) = delete;
  FileOfMemory& operator=(const FileOfMemory&) = delete;
  int descriptor() const { return descriptor_; }
  std::string path() const {
    return "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(descriptor_);
  }

 private:
  const int descriptor_;
};

TEST_F(LedgerTest, AFileThatWasMadeOneHasMembersOfItsOwn) {
  const FileOfMemory file;
  std::string why_not;
  ASSERT_TRUE(make_ledger(file.path(), &why_not)) << why_not;
  const auto apart = join();
  name_ = file.path();
  const auto ledger = join();
  start_peer(300);
  EXPECT_EQ(ask(*ledger), 300u);
  EXPECT_EQ(apart->peers(), 0u);
  std::vector<LedgerMember> members;
  EXPECT_EQ(read_ledger(file.path(), &members, &why_not), LedgerRead::kRead) << why_not;
  EXPECT_EQ(members.size(), 2u);
}

TEST_F(LedgerTest, AFileThatIsNoneIsRefusedAndLeftAsItIs) {
  const FileOfMemory file;
  ASSERT_EQ(::fchmod(file.descriptor(), 0600), 0);
  ASSERT_EQ(::write(file.descriptor(), "else", 4), 4);
  std::string why_not;
  EXPECT_EQ(Ledger::join(file.path(), &why_not), nullptr);
  EXPECT_EQ(why_not, file.path() + " is no ledger of this version");
  struct stat status{};
  ASSERT_EQ(::fstat(file.descriptor(), &status), 0);
  EXPECT_EQ(status.st_size, 4);
  EXPECT_EQ(Ledger::join("/nowhere/at/all", &why_not), nullptr);
  EXPECT_NE(why_not.find("/nowhere/at/all: No such file"), std::string::npos) << why_not;
  EXPECT_FALSE(make_ledger("/nowhere/at/all", &why_not));
}

// Serves `ledger` on a thread of its own; `served` are the bytes asked for, in the order of the answers.
// Calls `before` each answer.
class Server {
 public:
  Server(
      Ledger& ledger, uint64_t gives, std::function<void()> before = [] {})
      : thread_([this, &ledger, gives, before = std::move(before)] {
          Ledger::Need need;
          while (!over_.load()) {
            if (!ledger.wait_for_need(&need, milliseconds(50))) continue;
            {
              const std::lock_guard guard(mutex_);
              served_.push_back(need.bytes);
            }
            before();
            ledger.answer(need, gives);
          }
        }) {}
  ~Server() {
    over_ = true;
    thread_.join();
  }
  std::vector<uint64_t> served() {
    const std::lock_guard guard(mutex_);
    return served_;
  }

 private:
  std::atomic<bool> over_{false};
  std::mutex mutex_;
  std::vector<uint64_t> served_;
  std::thread thread_;
};

TEST_F(LedgerTest, NeedsAreAnsweredInTheOrderInWhichTheyWereAsked) {
  const auto giver = join();
  // In the order of their slots, which is not that of their needs.
  const auto first_slot = join(), second_slot = join(), third_slot = join();
  Ledger* const in_order_of_needs[] = {third_slot.get(), first_slot.get(), second_slot.get()};
  std::vector<std::thread> askers;
  for (Ledger* const asker : in_order_of_needs) {
    const size_t bytes = askers.size() + 1;
    askers.emplace_back(
        [asker, bytes] { asker->ask(kCard, bytes, Clock::now() + milliseconds(8000), [] { return true; }); });
    wait_until([this, bytes] { return asking() == bytes; });
  }
  Ledger::Need need;
  for (uint64_t next = 1; next <= 3; ++next) {
    ASSERT_TRUE(giver->wait_for_need(&need, milliseconds(2000)));
    EXPECT_EQ(need.bytes, next);
    giver->answer(need, 10);
  }
  for (std::thread& asker : askers) asker.join();
}

TEST_F(LedgerTest, OfTwoThatAreShortTheEarlierIsServedFirst) {
  const auto early = join(), late = join();
  std::atomic<size_t> asking_when_served{0};
  Server early_gives(*early, 100, [&] { asking_when_served = asking(); });
  const auto most = milliseconds(1500);
  uint64_t early_got = 1, late_got = 0;
  const auto third = join();  // keeps the early one waiting
  std::thread first([&] { early_got = early->ask(kCard, 1, Clock::now() + 4 * most, [] { return false; }); });
  wait_until([this] { return asking() == 1; });
  std::thread second([&] { late_got = late->ask(kCard, 2, Clock::now() + 4 * most, [] { return false; }); });
  std::this_thread::sleep_for(milliseconds(200));
  Server late_gives(*late, 100);
  std::this_thread::sleep_for(milliseconds(200));
  EXPECT_TRUE(early_gives.served().empty()) << "what asks itself gives nothing to later needs";
  Server third_gives(*third, 0);
  first.join();
  second.join();
  EXPECT_EQ(early_got, 0u) << "what asks itself has nothing to give to an earlier need";
  EXPECT_TRUE(late_gives.served().empty());
  EXPECT_EQ(late_got, 100u) << "and gives to the later one when its own is over";
  EXPECT_EQ(asking_when_served, 1u) << "the later one alone";
}

TEST_F(LedgerTest, WhatWasGivenIsNotAskedBackAtOnce) {
  const auto one = join(), other = join();
  {
    Server gives(*other, 100);
    EXPECT_EQ(ask(*one), 100u);
  }
  const auto given = Clock::now();
  Server gives(*one, 100);
  EXPECT_EQ(ask(*other), 100u);
  EXPECT_GE(Clock::now() - given, Ledger::kKept - milliseconds(50));
  constexpr DeviceUuid kOtherCard{9};
  EXPECT_EQ(one->ask(kOtherCard, 1, Clock::now() + milliseconds(2000), [] { return false; }), 0u)
      << "nobody answers";
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

// Members that ask and give at the same time, as real ones do, and are killed at any moment.
TEST_F(LedgerTest, FourThatCompeteAndAreKilledLeaveNothing) {
  const auto watcher = join();
  std::mt19937 random(23);
  const auto compete = [&] {
    const pid_t pid = ::fork();
    if (pid != 0) {
      children_.push_back(pid);
      return pid;
    }
    std::string why_not;
    const std::unique_ptr<Ledger> ledger = Ledger::join(name_, &why_not);
    if (ledger == nullptr) ::_exit(1);
    std::thread([&ledger] {
      Ledger::Need need;
      for (;;) {
        if (ledger->wait_for_need(&need, milliseconds(50))) ledger->answer(need, 1);
        ledger->show(entry_of(need.number));
      }
    }).detach();
    for (;;) {
      const auto start = Clock::now();
      ledger->ask(kCard, 10, start + milliseconds(1000), [] { return true; });
      if (Clock::now() - start > milliseconds(3000)) ::_exit(2);
    }
  };
  for (int i = 0; i < 4; ++i) compete();
  for (int kill = 0; kill < 200; ++kill) {
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 4000));
    const pid_t victim = children_[random() % children_.size()];
    ::kill(victim, SIGKILL);
    int status = 0;
    ::waitpid(victim, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status)) << "it hung, or could not join: " << WEXITSTATUS(status);
    std::erase(children_, victim);
    compete();
    std::vector<LedgerMember> members;
    std::string why_not;
    ASSERT_EQ(read_ledger(name_, &members, &why_not), LedgerRead::kRead);
    EXPECT_LE(members.size(), 5u);
    for (const LedgerMember& member : members)
      EXPECT_EQ(member.entry.failures, member.entry.devices[0].held_bytes) << "no mixture";
  }
  while (!children_.empty()) end(children_.back());
  EXPECT_EQ(watcher->peers(), 0u);
}

// The system fails the reading of what a process was, where it goes between opening and reading.
TEST(ProcessIdentity, OfAProcessThatGoesWhileItIsLookedAtIsNone) {
  for (int round = 0; round < 300; ++round) {
    const pid_t child = ::fork();
    if (child == 0)
      for (;;) ::pause();
    std::thread killer([child] {
      ::kill(child, SIGKILL);
      ::waitpid(child, nullptr, 0);
    });
    while (start_of(static_cast<uint64_t>(child)) != 0) continue;
    for (int look = 0; look < 20; ++look) EXPECT_EQ(start_of(static_cast<uint64_t>(child)), 0u);
    killer.join();
  }
}

}  // namespace
}  // namespace spillway
