// What the trace is told now and then of who holds the memory.
#include "strategies/sites/holders_told.h"

#include <gmock/gmock.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "tests/allocator/simulated.h"
#include "trace/reader.h"

namespace spillway::testing {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::FieldsAre;

struct Told {
  uint64_t clock_ns, bytes, blocks;
  std::string place;
};

class HoldersToldTest : public SimulatedDevice {
 protected:
  void SetUp() override {
    SimulatedDevice::SetUp();
    std::remove(path.c_str());
    std::string error;
    trace = trace::Trace::open(path, {}, &error);
    ASSERT_NE(trace, nullptr) << error;
    allocator->set_trace(trace.get());
  }
  void TearDown() override {
    allocator->set_trace(nullptr);
    trace.reset();
    std::remove(path.c_str());
    SimulatedDevice::TearDown();
  }

  uint64_t held_by(const std::string& place, uint64_t bytes) {
    const uint64_t address = get(bytes);
    EXPECT_EQ(allocator->set_site(address, trace->intern(place), bytes), Status::kOk);
    return address;
  }
  void at(int second) {
    told.tell_when_due(*allocator, HoldersTold::Clock::time_point(seconds(1000 + second)));
  }

  std::vector<Told> all_told() const {
    trace::Contents contents;
    std::string error;
    EXPECT_TRUE(trace::read(path, &contents, &error)) << error;
    std::vector<Told> all;
    for (const trace::Record& record : contents.records)
      if (record.kind == trace::Kind::kHeld)
        all.push_back({record.address, record.bytes, record.requested,
                       record.flags != 0 ? "all" : contents.names[record.detail]});
    return all;
  }
  std::vector<uint64_t> seconds_told() const {
    std::vector<uint64_t> times;
    for (const Told& one : all_told())
      if (one.place == "all") times.push_back(one.clock_ns / 1'000'000'000 - 1000);
    return times;
  }

  const std::string path = ::testing::TempDir() + "holders_told.trace";
  std::unique_ptr<trace::Trace> trace;
  HoldersTold told;
};

TEST_F(HoldersToldTest, TellsThePlacesAndThenTheSum) {
  held_by("a.py:1 small", kMiB);
  held_by("b.py:2 large", 8 * kMiB);
  at(0);
  at(1);
  constexpr uint64_t kAt = 1001'000'000'000;
  EXPECT_THAT(all_told(),
              ElementsAre(FieldsAre(kAt, 8 * kMiB, 1, "b.py:2 large"),
                          FieldsAre(kAt, kMiB, 1, "a.py:1 small"), FieldsAre(kAt, 9 * kMiB, 0, "all")));
}

TEST_F(HoldersToldTest, TellsEveryTenSecondsAndSoonerAtTheStart) {
  for (int second = 0; second <= 45; ++second) {
    held_by("a.py:1 grow", kMiB);
    at(second);
  }
  EXPECT_THAT(seconds_told(), ElementsAre(1, 2, 4, 8, 16, 26, 36));
}

TEST_F(HoldersToldTest, TellsNothingTwice) {
  held_by("a.py:1 grow", kMiB);
  for (int second = 0; second <= 30; ++second) at(second);
  EXPECT_THAT(seconds_told(), ElementsAre(1));
  held_by("a.py:1 grow", kMiB);
  at(40);
  EXPECT_THAT(seconds_told(), ElementsAre(1, 40));
}

TEST_F(HoldersToldTest, TellsOfMemoryThatIsFreed) {
  held_by("a.py:1 stays", kMiB);
  const uint64_t freed = held_by("a.py:2 goes", kMiB);
  at(0);
  at(1);
  put(freed);
  at(5);
  EXPECT_THAT(seconds_told(), ElementsAre(1, 5));
}

TEST_F(HoldersToldTest, ThePlacesThatHoldLeastAreOne) {
  for (uint64_t i = 1; i <= 4; ++i) held_by("a.py:" + std::to_string(i) + " grow", i * kMiB);
  const std::vector<SiteHolding> holders = largest_holders(*allocator, kDevice, 3);
  ASSERT_EQ(holders.size(), 3u);
  EXPECT_EQ(holders[0].bytes, 4 * kMiB);
  EXPECT_EQ(holders[1].bytes, 3 * kMiB);
  EXPECT_EQ(holders[2].bytes, 3 * kMiB);
  EXPECT_EQ(holders[2].blocks, 2u);
  EXPECT_EQ(holders[2].site, 0u) << "it has no name";
  EXPECT_EQ(largest_holders(*allocator, kDevice, 4).back().site, trace->intern("a.py:1 grow"));
}

}  // namespace
}  // namespace spillway::testing
