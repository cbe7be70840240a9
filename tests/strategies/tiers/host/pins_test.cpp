// Memory that is pinned while moves are chosen or under way.
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <utility>

#include "tests/strategies/tiers/spill_fixture.h"

namespace spillway::testing {
namespace {

// The next call of the driver's runs something first.
class InterruptedSpill : public Spill {
 protected:
  void SetUp() override {
    Spill::SetUp();
    interrupted_ = table;
    interrupted_.cuMemcpyAsync = [](auto... arguments) {
      run(&at_copy_);
      return simulated_table().cuMemcpyAsync(arguments...);
    };
    interrupted_.cuMemUnmap = [](auto... arguments) {
      run(&at_unmap_);
      return simulated_table().cuMemUnmap(arguments...);
    };
    allocator->set_handler(nullptr);
    allocator = std::make_unique<Allocator>(interrupted_);
    allocator->set_handle_rule(handle_rule);
    with({.host_bytes = 256 * kMiB, .available = nullptr, .most_slowdown = 0});
    allocator->limit(kDevice, 32 * kMiB);
    pinned_ = false;
    set_pins(*allocator, [] {
      Pins pins;
      if (pinned_) pins.add(0, UINT64_MAX);
      return pins;
    });
  }
  static void run(std::function<void()>* first) {
    if (*first) std::exchange(*first, nullptr)();
  }

  static inline driver::Table interrupted_;
  static inline std::function<void()> at_copy_, at_unmap_;
  static inline std::atomic<bool> pinned_{false};
};

TEST_F(InterruptedSpill, APinWaitsForTheMoveThatIsUnderWay) {
  blocks_of(10 * kMiB, 3);
  let_time_pass();
  std::future<void> pin;
  at_copy_ = [&] {
    pin = std::async(std::launch::async, [&] {
      pinned_ = true;
      wait_for_moves(*allocator);
    });
    EXPECT_EQ(pin.wait_for(std::chrono::milliseconds(200)), std::future_status::timeout);
  };
  EXPECT_NE(get(10 * kMiB), 0u);
  ASSERT_TRUE(pin.valid()) << "nothing moved";
  pin.wait();
}

TEST_F(InterruptedSpill, WhatIsPinnedAfterItWasChosenStays) {
  const auto blocks = blocks_of(10 * kMiB, 3);
  put(blocks[1]);
  let_time_pass();
  at_unmap_ = [] { pinned_ = true; };  // of the idle pages, before the others' move
  EXPECT_EQ(get(14 * kMiB), 0u);
  EXPECT_TRUE(pinned_) << "nothing was taken";
  EXPECT_EQ(memory().spilled, 0u);
  pinned_ = false;
  EXPECT_NE(get(14 * kMiB), 0u);
}

}  // namespace
}  // namespace spillway::testing
