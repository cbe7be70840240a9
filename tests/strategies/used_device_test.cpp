// A thread of Spillway's own and the process's exit: who began to call the driver ends, nobody begins any
// more.
#include "strategies/used_device.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string_view>
#include <thread>

#include "tests/allocator/simulated.h"

namespace spillway::testing {
namespace {

void say(std::string_view text) {
  if (::write(STDERR_FILENO, text.data(), text.size()) < 0) std::_Exit(3);
}

// Runs after the handler of the spans, as the driver's own does.
void when_the_driver_ends() {
  const DriverSpan late;
  say(late.begun() ? "begun after all" : "none");
}

[[noreturn]] void exit_within_a_span() {
  static std::atomic<bool> begun{false};
  std::atexit(when_the_driver_ends);
  simulated_table().cuInit(0);
  if (device_count(simulated_table()) == 0) std::_Exit(4);
  std::thread([] {
    const DriverSpan span;
    begun = span.begun();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    say("ended ");
  }).detach();
  while (!begun) std::this_thread::yield();
  std::exit(0);
}

TEST(DriverSpanDeathTest, ExitWaitsForOneAndLetsNoneBegin) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // the simulator does not survive a fork
  EXPECT_EXIT(exit_within_a_span(), ::testing::ExitedWithCode(0), "ended none");
}

TEST(DriverSpan, OneAtATime) {
  {
    const DriverSpan one;
    EXPECT_TRUE(one.begun());
    const DriverSpan other;
    EXPECT_FALSE(other.begun());
  }
  const DriverSpan again;
  EXPECT_TRUE(again.begun());
}

}  // namespace
}  // namespace spillway::testing
