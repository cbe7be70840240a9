// `spillway report --html`: what stands in the page. tests/tools/page/page_program.py opens it in a browser.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <random>

#include "tests/tools/support.h"
#include "tools/spillway/history/lives.h"
#include "tools/spillway/history/moment.h"
#include "tools/spillway/page/columns.h"
#include "tools/spillway/page/history_json.h"
#include "tools/spillway/page/page.h"
#include "tools/spillway/snapshot/snapshot.h"
#include "trace/writer.h"

namespace spillway::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::ordered_json;

const std::string kGolden = std::string(GOLDEN_FOLDER) + "/snapshot.pickle";

TEST(Columns, NumbersOfAllWidthsComeBack) {
  Column column;
  for (const uint64_t number : {uint64_t{0}, uint64_t{127}, uint64_t{128}, uint64_t{1} << 40, UINT64_MAX})
    column.add(number);
  EXPECT_THAT(numbers_of(column.base64()), ElementsAre(0, 127, 128, uint64_t{1} << 40, Column::kLargest));
  EXPECT_EQ(Column().base64(), "");
}

TEST(Columns, StepsOfEitherSignAreShort) {
  Column column;
  for (const uint64_t number : {1000, 1001, 999, 999}) column.add_step_to(number);
  EXPECT_THAT(numbers_of(column.base64()), ElementsAre(2000, 2, 3, 0));
}

TEST(Columns, AnyBytesInBase64) {
  EXPECT_EQ(base64_of(""), "");
  EXPECT_EQ(base64_of("\xff"), "/w==");
  EXPECT_EQ(base64_of("ab"), "YWI=");
  EXPECT_EQ(base64_of("abc"), "YWJj");
}

TEST(InertJson, HoldsNoMarkup) {
  const std::string hostile = "</script><script>alert(1)</script>&\xE2\x80\xA8\xE2\x80\xA9<!--";
  const std::string text = inert_json(Json{{"name", hostile}}.dump());
  for (const char* mark : {"<", ">", "&", "\xE2\x80\xA8", "\xE2\x80\xA9"})
    EXPECT_THAT(text, Not(HasSubstr(mark)));
  EXPECT_EQ(Json::parse(text)["name"], hostile) << "the same JSON";
}

// A history of random events that fit together: blocks in segments, some of them freed in two steps.
DeviceHistory random_history(uint64_t seed, size_t count) {
  std::mt19937_64 random(seed);
  DeviceHistory device;
  std::map<uint64_t, HistoryBlock> live;
  HistorySegment segment{.address = 1 << 20, .size = 64 << 20, .stream = 0, .pool = {}, .blocks = {}};
  device.events.push_back({Action::kSegmentAllocate, 0, segment.address, segment.size, 0, 0, {}});
  while (device.events.size() < count) {
    const uint64_t address = segment.address + random() % 64 * (1 << 20), time = device.events.size() * 3;
    const auto block = live.find(address);
    if (block == live.end()) {
      const uint64_t bytes = 1 + random() % (1 << 19);
      live[address] = {address, rounded_block(bytes), bytes, BlockState::kAllocated, 0};
      device.events.push_back({Action::kAllocate, 0, address, bytes, 0, time, {}});
    } else if (block->second.state == BlockState::kAllocated) {
      block->second.state = BlockState::kPendingFree;
      device.events.push_back({Action::kFreeRequested, 0, address, block->second.requested, 0, time, {}});
    } else {
      device.events.push_back({Action::kFreeCompleted, 0, address, block->second.requested, 0, time, {}});
      live.erase(block);
    }
  }
  for (const auto& [address, block] : live) segment.blocks.push_back(block);
  device.segments.push_back(segment);
  return device;
}

// What the lives say of a moment is what moment.h finds there.
TEST(Lives, AgreeWithEveryMoment) {
  const DeviceHistory device = random_history(1, 400);
  const Lives lives = lives_of(device);
  ASSERT_EQ(lives.moments, device.events.size() + 1);
  for (uint64_t moment = 0; moment < lives.moments; ++moment) {
    std::vector<std::tuple<uint64_t, uint64_t, uint64_t, bool>> told, found;
    for (const BlockLife& block : lives.blocks)
      if (block.from <= moment && moment < block.until)
        told.emplace_back(block.address, block.held, block.requested, block.pending <= moment);
    const Moment expected = moment_at(device, moment);
    for (const HeldBlock& block : expected.blocks)
      found.emplace_back(block.address, block.size, block.requested, block.pending);
    std::sort(told.begin(), told.end());
    ASSERT_EQ(told, found) << "moment " << moment;
    uint64_t reserved = 0;
    for (const SegmentLife& segment : lives.segments)
      if (segment.from <= moment && moment < segment.until) reserved += segment.size;
    ASSERT_EQ(reserved, expected.reserved) << "moment " << moment;
  }
}

TEST(Lives, PartsThatWereMappedAtOnceAndUnmappedInTwo) {
  DeviceHistory device;
  device.events = {{Action::kSegmentAllocate, 0, 0, 40, 0, 0, {}},
                   {Action::kSegmentFree, 0, 10, 10, 0, 0, {}},
                   {Action::kSegmentFree, 0, 20, 20, 0, 0, {}}};
  device.segments.push_back(
      {.address = 0, .size = 10, .stream = 0, .pool = {}, .expandable = true, .blocks = {}});
  std::vector<std::tuple<uint64_t, uint64_t, uint64_t, uint64_t>> told;
  for (const SegmentLife& part : lives_of(device).segments)
    told.emplace_back(part.address, part.size, part.from, part.until);
  EXPECT_THAT(told, ElementsAre(std::tuple(0, 10, 1, 4), std::tuple(10, 10, 1, 2), std::tuple(20, 20, 1, 3)));
}

MemoryHistory golden() {
  std::string error;
  auto snapshot = read_snapshot(kGolden, &error);
  EXPECT_TRUE(snapshot) << error;
  return snapshot.value_or(MemoryHistory());
}

uint64_t sum_of(const Json& column) {
  uint64_t sum = 0;
  for (const uint64_t number : numbers_of(column.get<std::string>())) sum += number;
  return sum;
}

TEST(HistoryJson, TheColumnsHoldEveryAllocation) {
  const MemoryHistory history = golden();
  const DeviceHistory& device = history.devices.at(0);
  uint64_t allocated = 0, allocations = 0, freed = 0;
  for (const HistoryEvent& event : device.events) {
    allocated += event.action == Action::kAllocate ? event.size : 0;
    allocations += event.action == Action::kAllocate ? 1 : 0;
    freed += event.action == Action::kFreeCompleted ? 1 : 0;
  }
  const Json json = history_json(history, 0);
  const Json& blocks = json["blocks"];
  EXPECT_EQ(blocks["count"], allocations);
  EXPECT_EQ(sum_of(blocks["bytes"]), allocated);
  EXPECT_EQ(numbers_of(json["times"].get<std::string>()).size(), device.events.size());
  for (const char* column : {"from", "life", "pending", "bytes", "extra", "address", "stack"})
    EXPECT_EQ(numbers_of(blocks[column].get<std::string>()).size(), allocations) << column;
  // A block that is still there ends with the last moment.
  uint64_t at = 0, ended = 0;
  const auto from = numbers_of(blocks["from"].get<std::string>()),
             life = numbers_of(blocks["life"].get<std::string>());
  for (size_t i = 0; i < from.size(); ++i) {
    at += from[i] / 2;  // never backwards: blocks stand in the order of their allocation
    EXPECT_EQ(from[i] % 2, 0u);
    ended += at + life[i] < json["moments"].get<uint64_t>() ? 1 : 0;
  }
  EXPECT_EQ(ended, freed);
}

TEST(HistoryJson, AStackLeadsToItsFramesAndItsPlace) {
  const MemoryHistory history = golden();
  const Json stacks = history_json(history, 0)["stacks"];
  const auto numbers = [&](const char* column) { return numbers_of(stacks[column].get<std::string>()); };
  const auto depth = numbers("depth"), place = numbers("place"), frames = numbers("frames");
  ASSERT_EQ(depth.size(), place.size());
  EXPECT_EQ(frames.size(), sum_of(stacks["depth"]));
  for (const uint64_t one : place) ASSERT_LT(one, stacks["places"].size());
  EXPECT_THAT(stacks["places"].dump(), HasSubstr("train.py:11 step"));
}

std::string page_of(const MemoryHistory& history) {
  const auto findings = look_into(history, 64 << 20);
  EXPECT_TRUE(findings);
  const std::string path = "run.pickle";
  return findings ? snapshot_page({path, history, *findings}) : "";
}

Json data_of(const std::string& page) {
  const std::string opening = "<script type=\"application/json\" id=\"data\">";
  const size_t start = page.find(opening) + opening.size();
  return Json::parse(page.substr(start, page.find("</script>", start) - start));
}

TEST(Page, HoldsTheReportOfJson) {
  const MemoryHistory history = golden();
  const Json data = data_of(page_of(history));
  EXPECT_EQ(data["kind"], "snapshot");
  EXPECT_EQ(data["report"]["verdict"]["cause"], "leak");
  EXPECT_EQ(data["history"]["failures"][0]["bytes"], data["report"]["failure"]["asked_bytes"]);
}

TEST(Page, LetsNothingElseRunAndReachesNoNetwork) {
  const std::string page = page_of(golden());
  EXPECT_THAT(page, HasSubstr("default-src 'none'; script-src 'sha256-"));
  for (const char* loose :
       {"unsafe-inline", "unsafe-eval", "src=\"http", "href=\"http", "@SCRIPT", "@STYLE", "@LICENCE"})
    EXPECT_THAT(page, Not(HasSubstr(loose)));
}

TEST(Page, NamesThatAreNoUtf8OrMarkupStayText) {
  MemoryHistory history = golden();
  for (auto& frames : history.stacks)
    for (StackFrame& frame : frames) frame.function = "</script><script>alert(1)</script>\xff\xfe";
  const std::string page = page_of(history);
  EXPECT_THAT(page, Not(HasSubstr("alert(1)</script>")));
  EXPECT_THAT(data_of(page)["history"]["stacks"]["texts"].dump(),
              HasSubstr("</script><script>alert(1)</script>\xEF\xBF\xBD"));
}

using PageCommand = CommandTest;

TEST_F(PageCommand, WritesOneFileAndSaysWhere) {
  std::filesystem::copy_file(kGolden, folder() / "run.pickle");
  const Ran ran = run({"report", "run.pickle", "--html", "out.html"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("out.html"));
  EXPECT_EQ(std::count(ran.out.begin(), ran.out.end(), '\n'), 1);
  std::ifstream file(folder() / "out.html", std::ios::binary);
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  EXPECT_THAT(page, HasSubstr("<!doctype html>"));
  EXPECT_EQ(data_of(page)["report"]["verdict"]["cause"], "leak");
}

TEST_F(PageCommand, AnOutputThatCannotBeWritten) {
  std::filesystem::copy_file(kGolden, folder() / "run.pickle");
  const Ran missing = run({"report", "run.pickle", "--html", "no/such/out.html"});
  EXPECT_EQ(missing.code, 4);
  EXPECT_THAT(missing.err,
              HasSubstr("--html: 'no/such/out.html' cannot be written: No such file or directory"));
  EXPECT_EQ(run({"report", "run.pickle", "--html", "/dev/full"}).code, 4);
}

TEST_F(PageCommand, HtmlAndJsonTogetherAreRefused) {
  std::filesystem::copy_file(kGolden, folder() / "run.pickle");
  const Ran ran = run({"report", "run.pickle", "--html", "out.html", "--json"});
  EXPECT_EQ(ran.code, 2);
  EXPECT_THAT(ran.err, HasSubstr("--html"));
  EXPECT_FALSE(std::filesystem::exists(folder() / "out.html"));
}

TEST_F(PageCommand, OfATraceItHoldsTheIncidents) {
  {
    std::string error;
    const auto trace = trace::Trace::open(
        folder() / "run.trace", {.rings = 1, .records_per_ring = 64, .side_table_bytes = 4096}, &error);
    ASSERT_TRUE(trace) << error;
    trace::Record record;
    record.kind = trace::Kind::kOom;
    record.value = 1;
    record.requested = record.bytes = 1 << 20;
    trace->write(record);
    record = {};
    record.kind = trace::Kind::kLadderOutcome;
    record.value = 1;
    record.detail = static_cast<uint64_t>(trace::Outcome::kGiveUp);
    trace->write(record);
  }
  ASSERT_EQ(run({"report", "run.trace", "--html", "out.html"}).code, 0);
  std::ifstream file(folder() / "out.html", std::ios::binary);
  const Json data = data_of({std::istreambuf_iterator<char>(file), {}});
  EXPECT_EQ(data["headline"], "NOT RESCUED: 1 of 1 allocation failure.");
  EXPECT_EQ(data["report"]["incidents"].size(), 1u);
  EXPECT_FALSE(data.contains("history"));
}

}  // namespace
}  // namespace spillway::tools
