// That locks out of order end the program, and locks in order do not, as the sanitizers' builds have it.
#ifndef SPILLWAY_CHECK_LOCKS
#define SPILLWAY_CHECK_LOCKS
#endif
#include <gtest/gtest.h>

#include <thread>

#include "base/mutex.h"

namespace spillway {
namespace {

Mutex<LockOrder::kPendingFrees> first;
SharedMutex<LockOrder::kMappings> second;
Mutex<LockOrder::kHeap> third;

TEST(LockOrder, DownTheTableIsAllowed) {
  const Locked one(first);
  const SharedLocked two(second);
  const Locked three(third);
}

TEST(LockOrderDeathTest, UpTheTableEndsTheProgram) {
  const Locked held(third);
  EXPECT_DEATH(const Locked out_of_order(first), "base/lock_order.h");
  EXPECT_DEATH(const SharedLocked out_of_order(second), "base/lock_order.h");
}

TEST(LockOrderDeathTest, TwoOfOnePlaceAreNeverHeldTogether) {
  Mutex<LockOrder::kHeap> another;
  const Locked held(third);
  EXPECT_DEATH(const Locked out_of_order(another), "base/lock_order.h");
}

TEST(LockOrder, ATryMayComeOutOfOrder) {
  const Locked held(third);
  ASSERT_TRUE(first.try_lock());
  const Locked adopted(first, kAdopt);
}

TEST(LockOrderDeathTest, ARecursiveLockIsTakenAgainWhateverIsHeld) {
  RecursiveMutex<LockOrder::kTrackers> recursive;
  const Locked one(recursive);
  const Locked later(third);
  {
    const Locked again(recursive);
  }
  EXPECT_DEATH(const Locked out_of_order(first), "base/lock_order.h");
}

TEST(LockOrderDeathTest, ARecursiveLockHasItsPlaceToo) {
  RecursiveMutex<LockOrder::kTrackers> recursive;
  {
    const Locked released(recursive);
  }
  const Locked held(third);
  EXPECT_DEATH(const Locked out_of_order(recursive), "base/lock_order.h");
}

TEST(LockOrder, WhatWasReleasedIsForgotten) {
  {
    const Locked held(third);
  }
  const Locked one(first);
}

TEST(LockOrder, IsEachThreadsOwn) {
  const Locked held(third);
  std::thread([] { const Locked one(first); }).join();
}

}  // namespace
}  // namespace spillway
