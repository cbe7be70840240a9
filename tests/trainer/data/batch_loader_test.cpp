// Batches made ahead: the same ones whoever makes them, never too many, and no thread that is left behind.
#include "trainer/data/batch_loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>

namespace spillway::trainer {
namespace {

constexpr uint32_t kRows = 3;
constexpr size_t kTokens = 12;

void number(uint64_t cursor, std::span<int64_t> batch) {
  for (size_t i = 0; i < batch.size(); ++i) batch[i] = int64_t(cursor * 100 + i);
}

std::vector<int64_t> numbered(uint64_t cursor) {
  std::vector<int64_t> batch(kTokens);
  number(cursor, batch);
  return batch;
}

void wait_until(const std::atomic<uint64_t>& count, uint64_t least) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (count < least && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  ASSERT_GE(count, least);
}

TEST(BatchLoader, ABatchBelongsToItsCursor) {
  for (const uint32_t workers : {0u, 1u, 4u})
    for (const uint32_t ahead : {1u, 2u, 7u}) {
      BatchLoader loader(number, kRows, kTokens, {workers, ahead});
      std::vector<int64_t> batch;
      // In a row, again, back, ahead of what was made, and as after a resume.
      for (const uint64_t cursor : {0, 3, 6, 9, 12, 12, 3, 6, 9, 300, 303, 304, 1, 4, 7, 10})
        for (int twice = 0; twice < 2; ++twice) {
          loader.take(cursor, &batch);
          ASSERT_EQ(batch, numbered(cursor)) << workers << " workers, " << ahead << " ahead";
        }
      for (uint64_t cursor = 0; cursor < 600; cursor += kRows) {
        loader.take(cursor, &batch);
        ASSERT_EQ(batch, numbered(cursor));
      }
    }
}

TEST(BatchLoader, NothingIsDrawnBeforeTheFirstTake) {
  std::atomic<uint64_t> draws{0};
  BatchLoader loader([&](uint64_t, std::span<int64_t>) { ++draws; }, kRows, kTokens, {2, 4});
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(draws, 0u);
}

TEST(BatchLoader, WorkersWaitWhenEnoughIsMade) {
  constexpr uint32_t kAhead = 3;
  std::atomic<uint64_t> taking{0}, draws{0}, too_early{0};
  {
    BatchLoader loader(
        [&](uint64_t cursor, std::span<int64_t> batch) {
          // The batch that is being taken is no longer ahead.
          if (cursor / kRows > taking + kAhead) ++too_early;
          number(cursor, batch);
          ++draws;
        },
        kRows, kTokens, {4, kAhead});
    std::vector<int64_t> batch;
    for (uint64_t step = 0; step < 50; ++step) {
      taking = step;
      loader.take(step * kRows, &batch);
      wait_until(draws, step + 1 + kAhead);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(draws, 50u + kAhead);
  }  // they end while they wait
  EXPECT_EQ(too_early, 0u);
}

TEST(BatchLoader, AnErrorOfADrawIsOneOfItsTake) {
  for (const uint32_t workers : {0u, 1u, 3u}) {
    std::atomic<bool> broken{true};
    BatchLoader loader(
        [&](uint64_t cursor, std::span<int64_t> batch) {
          if (cursor == 6 && broken) throw std::runtime_error("the disk is gone");
          number(cursor, batch);
        },
        kRows, kTokens, {workers, 4});
    std::vector<int64_t> batch;
    loader.take(0, &batch);
    loader.take(3, &batch);
    EXPECT_EQ(batch, numbered(3)) << "what comes before it is sound";
    for (int i = 0; i < 2; ++i)
      EXPECT_THAT([&] { loader.take(6, &batch); },
                  testing::ThrowsMessage<std::runtime_error>("the disk is gone"));
    loader.take(9, &batch);
    EXPECT_EQ(batch, numbered(9));
    broken = false;
    loader.take(6, &batch);
    EXPECT_EQ(batch, numbered(6));
  }
}

TEST(BatchLoader, TheEndWaitsForDrawsUnderWay) {
  std::atomic<uint64_t> begun{0}, ended{0};
  {
    BatchLoader loader(
        [&](uint64_t cursor, std::span<int64_t>) {
          ++begun;
          if (cursor > 0) std::this_thread::sleep_for(std::chrono::milliseconds(30));
          ++ended;
        },
        kRows, kTokens, {3, 8});
    std::vector<int64_t> batch;
    loader.take(0, &batch);
    wait_until(begun, 3);
  }
  EXPECT_EQ(begun, ended);
}

}  // namespace
}  // namespace spillway::trainer
