// What a rank's watch does for its training thread, with a store in this process.
#include "trainer/ranks/watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>
#include <mutex>

namespace spillway::trainer {
namespace {

class StoreHere : public WatchStore {
 public:
  void set(const std::string& key, const std::string& text) override {
    const std::lock_guard lock(mutex_);
    texts_[key] = text;
  }
  std::optional<std::string> get(const std::string& key) override {
    const std::lock_guard lock(mutex_);
    const auto found = texts_.find(key);
    return found == texts_.end() ? std::nullopt : std::optional(found->second);
  }
  std::string claim(const std::string& key, const std::string& text) override {
    const std::lock_guard lock(mutex_);
    return texts_.try_emplace(key, text).first->second;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::string> texts_;
};

WatchSettings settings() {
  using std::chrono::milliseconds;
  return {.judge = {.rank = 0, .size = 2, .store = "here:1", .bound = milliseconds(300)},
          .beat = milliseconds(50),
          .number = "12345",
          .keeps_store = false};
}

TEST(WatchOfRanks, AConnectionThatIsLostAfterTheRankHasLeftEndsItWithinTheBound) {
  Watch watch(settings(), [] { return std::make_unique<StoreHere>(); });
  watch.works("a checkpoint", 7, true);
  watch.leave();
  try {
    watch.lost_connection("connection reset by peer\nbacktrace");
    FAIL() << "it returned";
  } catch (const RanksEnded& ended) {
    EXPECT_THAT(ended.what(), testing::HasSubstr("connection reset by peer"));
  }
}

// Of this machine.
std::string beat_of_process_that_is_gone() {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
  Beat beat;
  beat.count = 1, beat.doing = "forward", beat.machine = this_machine();
  beat.process = child, beat.process_start = 1;
  return to_text(beat);
}

// An error of the device, say a kernel behind a sum that another rank has left.
TEST(WatchOfRanks, ARankThatFailsWaitsForTheCauseThatAnotherOneMayBe) {
  const auto with_store = [](const std::string& next) {
    return [next] {
      auto here = std::make_unique<StoreHere>();
      here->set("beat/1", next);
      return here;
    };
  };
  Watch watch(settings(), with_store(beat_of_process_that_is_gone()));
  watch.await_others();
  EXPECT_THAT(watch.say_why("rank 0 ended: unspecified launch failure", 0).cause,
              testing::HasSubstr("rank 1 died"));
}

TEST(WatchOfRanks, AFaultIsTheRanksOwnWhereAllOthersLive) {
  const auto store = std::make_shared<StoreHere>();
  struct Shared : WatchStore {
    explicit Shared(std::shared_ptr<StoreHere> all) : of_all(std::move(all)) {}
    void set(const std::string& key, const std::string& text) override { of_all->set(key, text); }
    std::optional<std::string> get(const std::string& key) override { return of_all->get(key); }
    std::string claim(const std::string& key, const std::string& text) override {
      return of_all->claim(key, text);
    }
    const std::shared_ptr<StoreHere> of_all;
  };
  const auto connect = [store] { return std::make_unique<Shared>(store); };
  WatchSettings patient = settings(), other = settings();
  patient.judge.bound = std::chrono::minutes(10);
  other.judge.rank = 1;
  Watch one(patient, connect), two(other, connect);
  one.await_others();
  EXPECT_FALSE(one.incident());
  EXPECT_EQ(one.say_why("rank 0 ended: device-side assert", 0).cause, "rank 0 ended: device-side assert");
}

// As where a disk hangs when it writes its report.
TEST(WatchOfRanks, ARankThatHangsAtItsEndLeavesAsOneThatTheIncidentEnded) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto hang_at_the_end = [] {
    const auto store = [] {
      auto here = std::make_unique<StoreHere>();
      here->claim("incident", to_json_text({.number = "12345", .rank = 1, .cause = "rank 1 died"}));
      return here;
    };
    WatchSettings quick = settings();
    quick.longest_end = std::chrono::milliseconds(100);
    Watch watch(quick, store);
    watch.when_held_up([](const Incident&) { std::abort(); });
    watch.begin_end();
    while (true) ::pause();
  };
  EXPECT_EXIT(hang_at_the_end(), testing::ExitedWithCode(18), "");
}

// Which ends all ranks as soon as the first one has ended.
TEST(WatchOfRanks, ARankThatHasLeftWritesItsReportBeforeItsLauncherEndsIt) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto end_in_time = [] {
    Watch watch(settings(), [] { return std::make_unique<StoreHere>(); });
    watch.leave();
    ::raise(SIGTERM);
    watch.finish();
    ::raise(SIGTERM);
    ::_exit(17);
  };
  EXPECT_EXIT(end_in_time(), testing::ExitedWithCode(17), "");
}

}  // namespace
}  // namespace spillway::trainer
