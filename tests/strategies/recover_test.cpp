// The recoverable step for programs of one's own, with errors of one's own.
#include "spillway/recover.h"

#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <vector>

namespace {

struct DriverError : std::runtime_error {
  explicit DriverError(int code) : std::runtime_error("error " + std::to_string(code)), code(code) {}
  int code;
};

TEST(Recover, ReturnsWhatTheFirstAttemptReturns) {
  int undone = 0;
  const auto step = spillway::recover([] { return 7; }, [&] { ++undone; }, [](uint32_t) { return true; });
  EXPECT_EQ(step.result.value_or(0), 7);
  EXPECT_EQ(step.failures, 0u);
  EXPECT_EQ(undone, 0);
}

TEST(Recover, UndoesThenMakesRoomThenTriesAgain) {
  std::vector<std::string> calls;
  const auto step = spillway::recover(
      [&] {
        calls.emplace_back("attempt");
        if (calls.size() < 6) throw std::bad_alloc();
      },
      [&] { calls.emplace_back("undo"); },
      [&](uint32_t failures) {
        calls.emplace_back("room " + std::to_string(failures));
        return true;
      });
  EXPECT_TRUE(step);
  EXPECT_EQ(step.failures, 2u);
  EXPECT_EQ(calls,
            (std::vector<std::string>{"attempt", "undo", "room 1", "attempt", "undo", "room 2", "attempt"}));
}

TEST(Recover, EndsWhenNothingGivesMemoryAndAfterSoManyAttempts) {
  int attempts = 0, undone = 0;
  const auto fail = [&] {
    ++attempts;
    throw std::bad_alloc();
  };
  const auto undo = [&] { ++undone; };
  const auto nothing = spillway::recover(fail, undo, [](uint32_t failures) { return failures < 2; });
  EXPECT_FALSE(nothing);
  EXPECT_EQ(attempts, 2);
  EXPECT_EQ(undone, 2);
  EXPECT_EQ(nothing.last_failure, std::bad_alloc().what());
  const auto endless = spillway::recover(fail, undo, [](uint32_t) { return true; }, 5);
  EXPECT_FALSE(endless);
  EXPECT_EQ(endless.failures, 5u);
  EXPECT_EQ(attempts, 7);
}

TEST(Recover, TellsFailuresOfOneClassApart) {
  const auto is_out_of_memory = [](const DriverError& error) { return error.code == 2; };
  int code = 2;
  const auto attempt = [&] { throw DriverError(code); };
  const auto change = [&](uint32_t) {
    code = 700;
    return true;
  };
  EXPECT_THROW(spillway::recover<DriverError>(attempt, [] {}, change, 8, is_out_of_memory), DriverError);
  EXPECT_EQ(code, 700);
  EXPECT_THROW(spillway::recover([] { throw std::logic_error("another"); }, [] {}, change), std::logic_error);
}

TEST(Recover, TheExceptionIsGoneWhenTheAttemptIsUndone) {
  struct Held : std::bad_alloc {
    std::shared_ptr<int> tensor = std::make_shared<int>(1);
  };
  std::weak_ptr<int> tensor;
  bool alive = true;
  const auto step = spillway::recover(
      [&] {
        Held held;
        tensor = held.tensor;
        throw held;
      },
      [&] { alive = !tensor.expired(); }, [](uint32_t) { return false; });
  EXPECT_FALSE(step);
  EXPECT_FALSE(alive);
}

}  // namespace
