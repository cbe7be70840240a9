// Threads of Spillway's own and the process's exit: who began to call the driver ends, nobody begins any
// more.
#include "strategies/processes/primary_context_guard.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string_view>
#include <thread>

#include "strategies/quiesce/wait_until_idle.h"
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

TEST(PrimaryContextGuard, HasItsNumberOnTheMachineWhateverIsVisible) {
  EXPECT_EQ(number_on_machine(nullptr, 3), 4u);
  EXPECT_EQ(number_on_machine("2, 0", 0), 3u);
  EXPECT_EQ(number_on_machine("2, 0", 1), 1u);
  EXPECT_EQ(number_on_machine("2,0", 2), 0u) << "there is none";
  EXPECT_EQ(number_on_machine("GPU-0011,MIG-22", 0), 0u);
  EXPECT_EQ(number_on_machine("", 0), 0u);
}

[[noreturn]] void exit_within(std::chrono::milliseconds time) {
  static std::atomic<bool> begun{false};
  std::atexit(when_the_driver_ends);
  simulated_table().cuInit(0);
  if (device_count(simulated_table()) == 0) std::_Exit(4);
  std::thread([time] {
    const DriverSpan span;
    begun = span.begun();
    std::this_thread::sleep_for(time);
    say("ended ");
  }).detach();
  while (!begun) std::this_thread::yield();
  std::exit(0);
}

TEST(DriverSpanDeathTest, ExitWaitsForOneAndLetsNoneBegin) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // the simulator does not survive a fork
  EXPECT_EXIT(exit_within(std::chrono::milliseconds(50)), ::testing::ExitedWithCode(0), "ended none");
}

// Host memory that is made on a busy machine takes that long, and so does LibTorch to load.
TEST(DriverSpanDeathTest, ExitWaitsForALongOneToo) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(exit_within(std::chrono::milliseconds(600)), ::testing::ExitedWithCode(0), "ended none");
}

TEST(DriverSpan, SeveralAtATime) {
  const DriverSpan one, other;
  EXPECT_TRUE(one.begun());
  EXPECT_TRUE(other.begun());
}

Allocator* waited_for = nullptr;

uint64_t driver_calls() {
  SpillwaySimulatorCounts counts{};
  simulated_table().simulator->counts(&counts);
  return counts.driver_calls;
}

bool is_idle() {
  return wait_until_idle(*waited_for, std::chrono::steady_clock::now() + std::chrono::seconds(20));
}

void wait_when_the_driver_ends() {
  const uint64_t before = driver_calls();
  const bool idle = is_idle();
  say(!idle && driver_calls() == before ? "left alone" : "called");
}

[[noreturn]] void exit_and_wait_for_devices() {
  const driver::Table& table = simulated_table();
  CUcontext context = nullptr;
  std::atexit(wait_when_the_driver_ends);
  if (table.cuInit(0) != CUDA_SUCCESS || table.cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
      table.cuCtxSetCurrent(context) != CUDA_SUCCESS)
    std::_Exit(4);
  waited_for = new Allocator(table);
  uint64_t address = 0;
  FailurePtr failure;
  if (waited_for->allocate(kDevice, {kMiB, StreamId{}, 0}, &address, &failure) != Status::kOk || !is_idle())
    std::_Exit(5);
  std::exit(0);
}

TEST(DriverSpanDeathTest, NobodyWaitsForDevicesAnyMore) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(exit_and_wait_for_devices(), ::testing::ExitedWithCode(0), "left alone");
}

}  // namespace
}  // namespace spillway::testing
