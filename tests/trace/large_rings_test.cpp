// Files whose rings are larger than the parts that a reader holds and reads: nothing is lost or out of order.
#include <atomic>
#include <thread>
#include <vector>

#include "tests/trace/support.h"

namespace spillway::trace {
namespace {

constexpr uint32_t kSlots = 1 << 15;  // a list holds its records by 2^14, and a file is read by 2^10

TEST(LargeRings, AreReadInOrderAfterTheyHaveWrapped) {
  constexpr uint64_t kWriters = 3, kWrites = kSlots + 20'000;
  const TemporaryFolder folder;
  auto trace = open_or_fail(folder / "t", {.rings = kWriters, .records_per_ring = kSlots});
  std::vector<std::thread> threads;
  std::atomic<uint64_t> done{0};
  for (uint64_t writer = 0; writer < kWriters; ++writer) {
    threads.emplace_back([&, writer] {
      for (uint64_t i = 0; i < kWrites; ++i) trace->write(numbered(writer, i));
      ++done;
      while (done.load() < kWriters) std::this_thread::yield();  // nobody takes another one's ring
    });
  }
  for (auto& thread : threads) thread.join();
  const Contents contents = read_or_fail(folder / "t");
  EXPECT_EQ(contents.incomplete, "");
  EXPECT_EQ(contents.overwritten, kWriters * (kWrites - kSlots));
  ASSERT_EQ(contents.records.size(), kWriters * kSlots);
  std::vector<uint64_t> next(kWriters, kWrites - kSlots);
  uint64_t order = 0;
  for (const Record& record : contents.records) {
    ASSERT_TRUE(is_numbered(record));
    ASSERT_EQ(record.address, next.at(record.stream)++);
    ASSERT_GE(record.order, order);
    order = record.order;
  }
}

}  // namespace
}  // namespace spillway::trace
