// The process's budget: what is drawn never passes the limit, whoever draws at the same time.
#include "allocator/accounting/process_budget.h"

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <thread>
#include <vector>

namespace spillway {
namespace {

using budget::By;

TEST(Budget, ThreadsThatRaceNeverDrawMoreThanTheLimit) {
  spillway_budget shared{};
  shared.limit_bytes = 100;
  std::atomic<bool> passed{false};
  std::barrier begin(4);  // none has done its work before the others are there
  std::vector<std::thread> threads;
  for (uint64_t number = 0; number < 4; ++number)
    threads.emplace_back([&, number] {
      begin.arrive_and_wait();
      for (int step = 0; step < 2'000'000; ++step) {
        const uint64_t bytes = 60 + number;  // one at a time
        if (!budget::draw(shared, 3, bytes, number % 2, number < 2 ? By::kAllocator : By::kDriverCall))
          continue;
        if (budget::read(shared.taken_bytes[3]) > 100) passed = true;
        budget::give_back(shared, 3, bytes, number < 2 ? By::kAllocator : By::kDriverCall);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(passed);
  EXPECT_EQ(shared.taken_bytes[3], 0u);
  EXPECT_EQ(shared.native_bytes[3], 0u);
}

TEST(Budget, WhatIsKeptStaysAndNothingWraps) {
  spillway_budget some{};
  some.limit_bytes = 100;
  EXPECT_FALSE(budget::draw(some, 0, 91, 10, By::kAllocator));
  EXPECT_FALSE(budget::draw(some, 0, UINT64_MAX, 0, By::kAllocator));
  EXPECT_FALSE(budget::draw(some, 0, 0, UINT64_MAX, By::kAllocator));
  EXPECT_TRUE(budget::draw(some, 0, 90, 10, By::kAllocator));
  EXPECT_EQ(budget::room(some, 0, 10), 0u);
  EXPECT_EQ(budget::room(some, 0, 0), 10u);
  EXPECT_EQ(budget::room(some, 1, 0), 100u) << "each device has its own";
  some.limit_bytes = 50;
  EXPECT_EQ(budget::room(some, 0, 0), 0u);
  EXPECT_FALSE(budget::draw(some, 0, 1, 0, By::kAllocator));
}

}  // namespace
}  // namespace spillway
