// What bounds a trace in Perfetto's form, and how its times and rows are found. That Perfetto's own classes
// read it is seen by tests/tools/formats/perfetto_reads.py.
#include <gmock/gmock.h>

#include <protozero/pbf_reader.hpp>
#include <random>

#include "tools/spillway/history/moment.h"
#include "tools/spillway/perfetto/lanes.h"
#include "tools/spillway/perfetto/time_axis.h"
#include "tools/spillway/perfetto/write.h"

namespace spillway::tools {
namespace {

using ::testing::ElementsAre;

HistoryEvent event_at(uint64_t microseconds, Action action = Action::kOther) {
  HistoryEvent event;
  event.action = action;
  event.microseconds = microseconds;
  return event;
}

std::vector<uint64_t> times_of(const std::vector<uint64_t>& microseconds) {
  DeviceHistory device;
  for (const uint64_t time : microseconds) device.events.push_back(event_at(time));
  const TimeAxis axis(device);
  std::vector<uint64_t> times;
  for (size_t moment = 1; moment <= microseconds.size(); ++moment) times.push_back(axis.of(moment));
  return times;
}

TEST(TimeAxis, EventsOfOneMicrosecondKeepTheirOrder) {
  EXPECT_THAT(times_of({5, 5, 7}), ElementsAre(5000, 5001, 7000));
}

TEST(TimeAxis, TimesThatFallStandStill) {
  EXPECT_THAT(times_of({5, 9, 6, 10}), ElementsAre(5000, 9000, 9001, 10000));
}

TEST(TimeAxis, WithoutAClockAnEventIsAMicrosecond) {
  EXPECT_THAT(times_of({7, 7, 7}), ElementsAre(0, 1000, 2000));
}

TEST(TimeAxis, AnyTimesFitIntoASignedNumber) {
  const std::vector<uint64_t> times = times_of({1, UINT64_MAX, UINT64_MAX});
  EXPECT_GT(times[2], times[1]);
  EXPECT_LE(times[2], uint64_t{INT64_MAX});
}

TEST(TimeAxis, NoEventsHaveOneTime) {
  const TimeAxis axis(DeviceHistory{});
  EXPECT_EQ(axis.of(0), axis.end());
}

TEST(Lanes, TheFirstRowThatIsFree) {
  Lanes lanes(2);
  EXPECT_EQ(lanes.place(10, 20), 0u);
  EXPECT_EQ(lanes.place(15, 25), 1u);
  EXPECT_EQ(lanes.place(20, 30), 0u) << "what ends there leaves room";
  EXPECT_EQ(lanes.place(0, 10), 0u);
  EXPECT_EQ(lanes.place(5, 16), std::nullopt) << "both rows are taken at 15";
  EXPECT_EQ(lanes.place(20, 20), std::nullopt) << "a row where another begins at once";
}

// The largest value of each counter, by the track's name.
std::map<std::string, int64_t> counters_of(const std::string& bytes) {
  std::map<uint64_t, std::string> names;
  std::map<std::string, int64_t> largest;
  protozero::pbf_reader file(bytes);
  while (file.next(1)) {
    protozero::pbf_reader packet = file.get_message();
    while (packet.next()) {
      const uint32_t kind = packet.tag();
      if (kind != 60 && kind != 11) {
        packet.skip();
        continue;
      }
      protozero::pbf_reader message = packet.get_message();
      uint64_t uuid = 0;
      std::string name;
      while (message.next()) {
        if (kind == 60 && message.tag() == 1)
          uuid = message.get_uint64();
        else if (kind == 60 && message.tag() == 2)
          name = message.get_string();
        else if (kind == 11 && message.tag() == 11)
          uuid = message.get_uint64();
        else if (kind == 11 && message.tag() == 30)
          largest[names[uuid]] = std::max(largest[names[uuid]], message.get_int64());
        else
          message.skip();
      }
      if (kind == 60) names[uuid] = name;
    }
  }
  return largest;
}

// A long history has a bounded file, and its highest point is in it.
TEST(Perfetto, AMillionEventsMakeAFileThatOpens) {
  constexpr size_t kEvents = 1'000'000;
  MemoryHistory history;
  DeviceHistory& device = history.devices[0];
  std::mt19937_64 random(3);
  std::vector<std::pair<uint64_t, uint64_t>> live;
  uint64_t now = 0, most = 0, next = 1 << 20;
  while (device.events.size() < kEvents) {
    HistoryEvent event = event_at(device.events.size());
    if (live.size() < 1000 || random() % 2 == 0) {
      event.action = Action::kAllocate;
      event.address = next += 1 << 20;
      event.size = 512 * (1 + random() % 2000);
      live.emplace_back(event.address, event.size);
      most = std::max(most, now += event.size);
    } else {
      std::swap(live[random() % live.size()], live.back());
      std::tie(event.address, event.size) = live.back();
      event.action = Action::kFreeCompleted;
      now -= event.size;
      live.pop_back();
    }
    device.events.push_back(event);
  }
  for (const auto& [address, size] : live)
    device.segments.push_back({.address = address,
                               .size = size,
                               .pool = {},
                               .blocks = {{address, size, size, BlockState::kAllocated, 0}}});
  std::sort(device.segments.begin(), device.segments.end(),
            [](const auto& a, const auto& b) { return a.address < b.address; });
  const PerfettoTrace trace = perfetto_of(history, nullptr);
  EXPECT_GT(trace.blocks, kEvents / 2);
  EXPECT_LE(trace.blocks_drawn, 20'000u);
  EXPECT_GT(trace.blocks_drawn, 10'000u);
  EXPECT_LT(trace.bytes.size(), 20u << 20);
  EXPECT_EQ(counters_of(trace.bytes)["in use"], static_cast<int64_t>(most));
}

}  // namespace
}  // namespace spillway::tools
