// What a rank's watch does for its training thread, with a store in this process.
#include "trainer/ranks/watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <signal.h>
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
