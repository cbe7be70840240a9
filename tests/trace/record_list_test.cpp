// The records of a trace in memory: a list whose parts can be given back, and its order.
#include "trace/record_list.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <random>

#include "trace/merge.h"

namespace spillway::trace {
namespace {

constexpr size_t kMany = 200'000;  // several chunks

RecordList list_of(size_t count, const std::function<uint64_t(size_t)>& order) {
  RecordList list;
  for (size_t i = 0; i < count; ++i) {
    Record record;
    record.order = order(i);
    record.address = i;
    list.push_back(record);
  }
  return list;
}

uint64_t resident_bytes() {
  std::ifstream pages("/proc/self/statm");
  uint64_t all = 0, resident = 0;
  pages >> all >> resident;
  return resident * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

// By order, and of one order by address.
bool is_in_order(const RecordList& list) {
  return std::ranges::is_sorted(list, {},
                                [](const Record& record) { return std::pair(record.order, record.address); });
}

TEST(RecordList, IsARangeAsAVectorIs) {
  RecordList list = list_of(kMany, [](size_t i) { return i; });
  EXPECT_EQ(list.size(), kMany);
  EXPECT_EQ(list.front().address, 0u);
  EXPECT_EQ(list.back().address, kMany - 1);
  EXPECT_EQ(list.end() - list.begin(), static_cast<ptrdiff_t>(kMany));
  uint64_t next = 0;
  for (const Record& record : list) ASSERT_EQ(record.address, next++);
  const RecordList moved = std::move(list);
  EXPECT_EQ(std::ranges::find(moved, 150'000u, &Record::order)->address, 150'000u);
}

TEST(RecordList, TakesNewRecordsWhereOthersWere) {
  RecordList list = list_of(kMany, [](size_t i) { return i; });
  list.shorten(10);
  list.push_back({.address = 99});
  EXPECT_EQ(list.size(), 11u);
  EXPECT_EQ(list[9].address, 9u);
  EXPECT_EQ(list[10].address, 99u);
}

TEST(RecordList, GivesTheMemoryOfWhatWasReadBackToTheSystem) {
  RecordList list = list_of(kMany, [](size_t i) { return i; });
  const uint64_t before = resident_bytes();
  list.give_back_before(kMany / 2);
  EXPECT_LT(resident_bytes() + kMany / 2 * sizeof(Record) * 3 / 4, before);
  EXPECT_EQ(list[kMany / 2].address, kMany / 2);
  list.clear();
  EXPECT_TRUE(list.empty());
}

TEST(MergeByOrder, MergesWhatIsSortedInParts) {
  for (const size_t parts : {1u, 2u, 3u, 7u}) {
    const size_t each = 50'000;
    RecordList list = list_of(parts * each, [&](size_t i) { return i % each * parts + i / each; });
    merge_by_order(&list);
    for (size_t i = 0; i < list.size(); ++i) {
      ASSERT_EQ(list[i].order, i) << parts << " parts";
      ASSERT_EQ(list[i].address, i % parts * each + i / parts) << parts << " parts";
    }
  }
}

TEST(MergeByOrder, SortsWhateverADamagedFileHolds) {
  std::mt19937 random(7);
  for (const size_t count : {0u, 1u, 2u, 3u, 1000u, 20'001u}) {
    for (const uint64_t orders : {1u, 5u, 1'000'000u}) {
      RecordList list = list_of(count, [&](size_t) { return random() % orders; });
      merge_by_order(&list);
      EXPECT_EQ(list.size(), count);
      EXPECT_TRUE(is_in_order(list)) << count << " records of " << orders << " orders";
    }
  }
  RecordList falling = list_of(kMany, [](size_t i) { return kMany - i; });
  merge_by_order(&falling);
  EXPECT_TRUE(is_in_order(falling));
}

}  // namespace
}  // namespace spillway::trace
