// Rings per thread: taken, handed back, reused, exhausted; and a reader beside running writers.
#include <atomic>
#include <thread>
#include <vector>

#include "tests/trace/support.h"

namespace spillway::trace {
namespace {

TEST(TraceThreads, KeepsEveryThreadsRecords) {
  const TemporaryFolder folder;
  auto trace = open_or_fail(folder / "t", {.rings = 8, .records_per_ring = 8192});
  std::atomic<int> ready{0};
  std::vector<std::thread> threads;
  for (uint64_t writer = 0; writer < 8; ++writer) {
    threads.emplace_back([&, writer] {
      ready.fetch_add(1);
      while (ready.load() < 8) std::this_thread::yield();
      for (uint64_t i = 0; i < 1000; ++i) trace->write(numbered(writer, i));
    });
  }
  for (auto& thread : threads) thread.join();
  const Contents contents = read_or_fail(folder / "t");
  // A thread that ended early may have left its ring to another: eight threads, at most eight rings, nothing
  // lost.
  EXPECT_EQ(contents.records.size(), 8000u);
  EXPECT_EQ(contents.dropped, 0u);
  for (const Record& record : contents.records) EXPECT_TRUE(is_numbered(record));
}

TEST(TraceThreads, ReusesTheRingOfAThreadThatEnded) {
  const TemporaryFolder folder;
  auto trace = open_or_fail(folder / "t", {.rings = 1, .records_per_ring = 64});
  for (uint64_t writer = 0; writer < 10; ++writer) {
    std::thread([&] { trace->write(numbered(writer, writer)); }).join();
  }
  const Contents contents = read_or_fail(folder / "t");
  ASSERT_EQ(contents.records.size(), 10u);
  EXPECT_EQ(contents.dropped, 0u);
  for (uint64_t i = 0; i < 10; ++i) EXPECT_EQ(contents.records[i].stamp, i + 1) << "numbers continue";
}

TEST(TraceThreads, CountsRecordsThatFindNoRing) {
  const TemporaryFolder folder;
  auto trace = open_or_fail(folder / "t", {.rings = 1, .records_per_ring = 64});
  trace->write(numbered(1, 1));
  std::thread([&] {
    for (uint64_t i = 0; i < 5; ++i) trace->write(numbered(2, i));
  }).join();
  EXPECT_EQ(trace->dropped(), 5u);
  const Contents contents = read_or_fail(folder / "t");
  EXPECT_EQ(contents.dropped, 5u);
  EXPECT_EQ(contents.records.size(), 1u);
}

TEST(TraceThreads, SurvivesAThreadThatOutlivesTheTrace) {
  const TemporaryFolder folder;
  auto first = open_or_fail(folder / "a");
  auto second = open_or_fail(folder / "b");
  std::atomic<int> stage{0};
  std::thread thread([&] {
    for (uint64_t i = 0; i < 10; ++i) {  // two traces in turn
      first->write(numbered(1, i));
      second->write(numbered(2, i));
    }
    stage.store(1);
    while (stage.load() != 2) std::this_thread::yield();
    second->write(numbered(2, 10));
  });
  while (stage.load() != 1) std::this_thread::yield();
  first.reset();
  stage.store(2);
  thread.join();
  EXPECT_EQ(read_or_fail(folder / "a").records.size(), 10u);
  EXPECT_EQ(read_or_fail(folder / "b").records.size(), 11u);
}

// Written from a thread-local destructor that runs after the thread's rings went back.
struct WritesAtExit {
  Trace* trace = nullptr;
  ~WritesAtExit() {
    if (trace == nullptr) return;
    trace->write(numbered(3, 1));
    trace->write(numbered(3, 2));
  }
};
thread_local WritesAtExit writes_at_exit;

TEST(TraceThreads, TakesRecordsOfAThreadThatIsEnding) {
  const TemporaryFolder folder;
  auto trace = open_or_fail(folder / "t", {.rings = 1, .records_per_ring = 64});
  for (int round = 0; round < 3; ++round) {
    std::thread([&] {
      writes_at_exit.trace = trace.get();  // constructed first, so destroyed last
      trace->write(numbered(3, 0));
    }).join();
  }
  EXPECT_EQ(trace->dropped(), 0u);
  EXPECT_EQ(read_or_fail(folder / "t").records.size(), 9u);
}

TEST(TraceThreads, InternsFromManyThreads) {
  const TemporaryFolder folder;
  auto trace = open_or_fail(folder / "t");
  std::vector<std::thread> threads;
  std::vector<std::vector<uint64_t>> indexes(4);
  for (auto& mine : indexes) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) mine.push_back(trace->intern("text " + std::to_string(i)));
      trace->set("last", "done");
    });
  }
  for (auto& thread : threads) thread.join();
  const Contents contents = read_or_fail(folder / "t");
  EXPECT_EQ(contents.names.size(), 200u);
  for (const auto& mine : indexes) EXPECT_EQ(mine, indexes[0]);
}

// Reads `rounds` times while three threads write, each `burst` records between two pauses, and checks every
// record.
void read_beside_writers(uint32_t records_per_ring, uint64_t burst, int rounds) {
  const TemporaryFolder folder;
  auto trace = open_or_fail(folder / "t", {.rings = 4, .records_per_ring = records_per_ring});
  std::atomic<bool> stop{false};
  std::atomic<int> wrapped{0};
  std::vector<std::thread> threads;
  for (uint64_t writer = 0; writer < 3; ++writer) {
    threads.emplace_back([&, writer] {
      for (uint64_t i = 0; !stop.load(std::memory_order_relaxed); ++i) {
        trace->write(numbered(writer, i));
        if (i == records_per_ring) ++wrapped;
        if (i % burst == 0) std::this_thread::sleep_for(std::chrono::microseconds(20));
      }
    });
  }
  while (wrapped.load() < 3) std::this_thread::yield();
  uint64_t seen = 0;
  for (int round = 0; round < rounds && !testing::Test::HasFailure(); ++round) {
    const Contents contents = read_or_fail(folder / "t");
    EXPECT_EQ(contents.incomplete, "");
    std::vector<uint64_t> last(3, 0);
    for (const Record& record : contents.records) {
      EXPECT_TRUE(is_numbered(record));
      uint64_t& before = last[record.stream % 3];
      EXPECT_TRUE(before == 0 || record.address == before + 1) << record.address << " after " << before;
      before = record.address;
    }
    seen += contents.records.size();
  }
  stop.store(true);
  for (auto& thread : threads) thread.join();
  EXPECT_GT(seen, 0u);
}

// The ring moves on by a part of itself while it is read: what is given has no gap.
TEST(TraceThreads, ReadsAFileThatIsBeingWritten) {
  read_beside_writers(1024, 700, 1'000);
}

// More records than a part of a list holds.
TEST(TraceThreads, ReadsLargeRingsThatAreBeingWritten) {
  read_beside_writers(1u << 15, 20'000, 20);
}

// So few slots that every one is rewritten while it is read.
TEST(TraceThreads, ReadsNoMixtureOfTwoRecords) {
  read_beside_writers(2, 1'000'000, 2'000);
}

}  // namespace
}  // namespace spillway::trace
