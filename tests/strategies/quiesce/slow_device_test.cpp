// A device with seconds of queued work: making room waits for as long as it gets on, and no longer.
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "allocator/streams/program_streams.h"
#include "strategies/quiesce/wait_until_idle.h"
#include "tests/strategies/tiers/spill_fixture.h"

namespace spillway::testing {
namespace {

using Clock = std::chrono::steady_clock;

// Work that ends at a moment of the host's clock, or when it is let go. Who asks about it only looks: as on a
// card, a query does not wait.
class TimedWork {
 public:
  explicit TimedWork(Clock::time_point end) : end_(end) {}
  void let_go() {
    const std::lock_guard lock(mutex_);
    end_ = Clock::time_point{};
    changed_.notify_all();
  }
  SpillwayExternalWork as_work(uint64_t virtual_ns) {
    SpillwayExternalWork work{};
    work.size = sizeof work;
    work.name = "slow";
    work.duration_ns = virtual_ns;
    work.wait = [](void* self, int64_t timeout_ms) {
      return static_cast<TimedWork*>(self)->wait(timeout_ms);
    };
    work.argument = this;
    return work;
  }

 private:
  SpillwayExternalState wait(int64_t timeout_ms) {
    std::unique_lock lock(mutex_);
    while (timeout_ms < 0 && Clock::now() < end_) changed_.wait_until(lock, end_);
    return Clock::now() < end_ ? SPILLWAY_EXTERNAL_PENDING : SPILLWAY_EXTERNAL_ENDED;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  Clock::time_point end_;
};

class SlowDevice : public Spill {
 protected:
  void SetUp() override {
    Spill::SetUp();
    ladder = std::make_unique<Ladder>(*allocator);
    ladder->add(make_spill_to_host(*allocator, {.host_bytes = 256 * kMiB}));
    ladder->set_gate(&gate);
    allocator->set_handler(ladder.get());
  }
  void queue(TimedWork& work, uint64_t virtual_ns = 1000) {
    const SpillwayExternalWork external = work.as_work(virtual_ns);
    ASSERT_EQ(control->submit_external(nullptr, &external), CUDA_SUCCESS);
  }
  // Pieces that end when they are let go, with a mark behind each.
  std::vector<std::unique_ptr<TimedWork>> queue_with_marks(int count, uint64_t virtual_ns) {
    std::vector<std::unique_ptr<TimedWork>> works;
    for (int i = 0; i < count; ++i) {
      works.push_back(std::make_unique<TimedWork>(Clock::now() + std::chrono::hours(1)));
      queue(*works.back(), virtual_ns);
      mark_progress(*allocator, StreamId{});
    }
    return works;
  }
  // By a thread that queues nothing: it sees what has really ended.
  uint64_t passed() {
    uint64_t count = 0;
    std::thread([&] { count = passed_marks(*allocator); }).join();
    return count;
  }
};

TEST_F(SlowDevice, IsWaitedForAsLongAsItsWorkGetsOn) {
  const auto blocks = blocks_of(10 * kMiB, 3);
  let_time_pass();
  constexpr int kPieces = 15;
  std::vector<std::unique_ptr<TimedWork>> works;
  const auto start = Clock::now();
  for (int i = 1; i <= kPieces; ++i) {
    works.push_back(std::make_unique<TimedWork>(start + i * std::chrono::milliseconds(450)));
    queue(*works.back());
    mark_progress(*allocator, StreamId{});
  }
  EXPECT_NE(get(20 * kMiB), 0u) << failure->text << ladder->story_of(failure->event.incident);
  for (const auto& work : works) work->let_go();
  table.cuCtxSynchronize();
}

// Of pieces longer than a wait has patience for: a graph of a whole step, attention to a long context.
TEST_F(SlowDevice, IsWaitedForAsLongAsItsPiecesTookBefore) {
  const auto blocks = blocks_of(10 * kMiB, 3);
  let_time_pass();
  static constexpr std::chrono::seconds kPiece{4};
  const auto queue_pieces = [this](std::vector<std::unique_ptr<TimedWork>>& works, auto first, auto next) {
    for (const auto end : {Clock::now() + first, Clock::now() + first + next}) {
      works.push_back(std::make_unique<TimedWork>(end));
      queue(*works.back(), std::chrono::nanoseconds(kPiece).count());
      mark_progress(*allocator, StreamId{});
    }
  };
  std::vector<std::unique_ptr<TimedWork>> before, now;
  queue_pieces(before, std::chrono::seconds(1), std::chrono::milliseconds(100));
  table.cuCtxSynchronize();
  EXPECT_EQ(passed(), 2u);
  EXPECT_NEAR(slowest_marks_us(*allocator), std::chrono::microseconds(kPiece).count(), 1000);
  queue_pieces(now, kPiece, kPiece);
  EXPECT_NE(get(20 * kMiB), 0u) << failure->text << ladder->story_of(failure->event.incident);
  for (const auto& work : now) work->let_go();
  table.cuCtxSynchronize();
}

TEST_F(SlowDevice, HasItsTimesAlsoWhereOnlySomeOfManyMarksAreKept) {
  ASSERT_NE(get(kMiB), 0u);
  constexpr int kPieces = 65;  // one more than are kept: of the others every second stays
  constexpr uint64_t kPieceNs = 1'000'000'000;
  const auto works = queue_with_marks(kPieces, kPieceNs);
  for (const auto& work : works) work->let_go();
  table.cuCtxSynchronize();
  EXPECT_GT(passed(), 0u);
  EXPECT_NEAR(slowest_marks_us(*allocator), 2'000'000, 100'000)
      << "of two pieces, between marks that were kept";
}

TEST_F(SlowDevice, IsNotTakenForSlowBecauseItHadNothingToDo) {
  constexpr uint64_t kPauseUs = 4'000'000;
  const uint64_t block = get(kMiB);
  ASSERT_NE(block, 0u) << failure->text;
  mark_progress(*allocator, StreamId{});
  table.cuCtxSynchronize();
  launch(new_stream(), block, kMiB, kPauseUs);
  table.cuCtxSynchronize();
  mark_progress(*allocator, StreamId{});
  table.cuCtxSynchronize();
  EXPECT_EQ(passed_marks(*allocator), 2u);
  EXPECT_EQ(slowest_marks_us(*allocator), 0);
}

TEST_F(SlowDevice, HasItsMarksEvenlyInAQueueOfAnyLength) {
  ASSERT_NE(get(kMiB), 0u);
  constexpr int kPieces = 300, kMostBetween = 8;
  constexpr uint64_t kLongerThanTheTest = 1'000'000'000'000;
  const auto works = queue_with_marks(kPieces, kLongerThanTheTest);
  EXPECT_EQ(passed(), 0u);
  uint64_t before = 0;
  int since = 0, most = 0;
  for (const auto& work : works) {
    work->let_go();
    const uint64_t now = passed();
    since = now == before ? since + 1 : 0;
    most = std::max(most, since);
    before = now;
  }
  EXPECT_LT(most, kMostBetween);
  table.cuCtxSynchronize();
}

TEST_F(SlowDevice, IsNotWaitedForWhenItStandsStill) {
  const auto blocks = blocks_of(10 * kMiB, 3);
  let_time_pass();
  TimedWork stuck(Clock::now() + std::chrono::hours(1));
  queue(stuck);
  EXPECT_EQ(get(20 * kMiB), 0u);
  EXPECT_EQ(status, Status::kOutOfMemory);
  stuck.let_go();
  // The thread that nobody waited for has the allocator until it is done.
  EXPECT_TRUE(wait_until_idle(*allocator, Clock::now() + std::chrono::seconds(20)));
}

}  // namespace
}  // namespace spillway::testing
