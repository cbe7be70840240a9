// Logs of RMM's: lines as its versions write them, what they tell as a history, damaged ones, and the
// commands that read them. golden/rmm.dev1.csv is a program of two threads over midnight, of which one keeps
// a block of each step; one request is served when it is asked again, the last one is not.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "tests/tools/support.h"
#include "tools/spillway/history/lives.h"
#include "tools/spillway/history/moment.h"
#include "tools/spillway/page/page.h"
#include "tools/spillway/perfetto/write.h"
#include "tools/spillway/rmm/judge.h"
#include "tools/spillway/rmm/line.h"
#include "tools/spillway/rmm/log.h"
#include "tools/spillway/snapshot/report.h"
#include "tools/spillway/snapshot/snapshot.h"
#include "tools/spillway/snapshot/write.h"

namespace spillway::tools {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kMiB = 1 << 20;
const std::string kGolden = std::string(GOLDEN_FOLDER) + "/rmm.dev1.csv";
const std::string kHeader = "Thread,Time,Action,Pointer,Size,Stream\n";

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

MemoryHistory parse(const std::string& text) {
  std::istringstream lines(text);
  std::string error;
  auto history = parse_rmm_log(lines, 0, &error);
  EXPECT_TRUE(history) << error;
  return history ? std::move(*history) : MemoryHistory();
}

HistoryFindings findings_of(const MemoryHistory& history, std::optional<uint64_t> capacity = std::nullopt) {
  auto found = look_into(history, capacity).value_or(HistoryFindings());
  judge_by_requests(&found);
  return found;
}

std::string row(int second, const std::string& action, uint64_t pointer, uint64_t size, int thread = 7) {
  char line[160];
  std::snprintf(line, sizeof line, "%d,10:00:%02d.000000,%s,0x%llx,%llu,0x2\n", thread, second,
                action.c_str(), static_cast<unsigned long long>(pointer),
                static_cast<unsigned long long>(size));
  return line;
}

TEST(RmmLine, AsItsVersionsWriteIt) {
  const RmmColumns columns;
  for (const char* time : {"14:21:19.998533", "14:21:19:998533"}) {
    const std::string text = "1979932," + std::string(time) + ",allocate,0x30a000000,256,0x2";
    const auto line = columns.read(text);
    ASSERT_TRUE(line) << time;
    EXPECT_EQ(line->thread, "1979932");
    EXPECT_EQ(line->microseconds, ((14 * 60 + 21) * 60 + 19) * 1'000'000ull + 998'533);
    EXPECT_EQ(line->action, RmmAction::kAllocate);
    EXPECT_EQ(line->pointer, 0x30a000000u);
    EXPECT_EQ(line->size, 256u);
    EXPECT_EQ(line->stream, 2u);
  }
  for (const char* null : {"(nil)", "0x0", "0"}) {
    const auto line =
        columns.read("7,01:02:03.5,allocate failure," + std::string(null) + ",99," + null + "\r");
    ASSERT_TRUE(line) << null;
    EXPECT_EQ(line->action, RmmAction::kFailure);
    EXPECT_EQ(line->pointer + line->stream, 0u);
    EXPECT_EQ(line->microseconds % 1'000'000, 500'000u);
  }
  const auto manual =
      columns.read("140573312345856,1634567890.345678,\"deallocate\",0x7f8a40000000,1024,0x7f8a38001020");
  ASSERT_TRUE(manual);
  EXPECT_EQ(manual->action, RmmAction::kFree);
  EXPECT_EQ(manual->microseconds, 1'634'567'890'345'678u);
}

TEST(RmmLine, OtherTextIsNone) {
  for (const char* text :
       {"", ",,,,,", "7,10:00:00.1,allocate,0x10,256", "7,10:00:00.1,steal,0x10,256,0x2",
        "7,24:00:00.1,free,0x10,256,0x2", "7,10:00,free,0x10,256,0x2", "7,10:00:00.x,free,0x10,256,0x2",
        "7,10:00:00.1,free,0xg,256,0x2", "7,10:00:00.1,free,0x10,-1,0x2",
        "7,10:00:00.1,free,0x10,99999999999999999999,0x2", "a thread,10:00:00.1,free,0x10,256,0x2",
        "7,99999999999999999999.1,free,0x10,256,0x2"})
    EXPECT_FALSE(RmmColumns().read(text)) << text;
}

TEST(RmmLine, TheHeaderSaysWhichColumnIsWhich) {
  const auto columns = RmmColumns::of_header("\xEF\xBB\xBF,Size,Action,Stream,Time,Pointer,Thread");
  ASSERT_TRUE(columns);
  const auto line = columns->read("0,512,free,0x3,10:00:00.000001,0x10,7");
  ASSERT_TRUE(line);
  EXPECT_EQ(line->size, 512u);
  EXPECT_EQ(line->pointer, 0x10u);
  EXPECT_FALSE(RmmColumns::of_header("Thread,Time,Action,Pointer,Size"));
}

TEST(RmmLine, AFileIsKnownByItsBeginning) {
  EXPECT_TRUE(begins_as_rmm_log(kHeader));
  EXPECT_TRUE(begins_as_rmm_log("7,10:00:00.1,free,0x10,256,0x2\nmore"));
  EXPECT_FALSE(begins_as_rmm_log("a 1 512 0\n"));
  EXPECT_FALSE(begins_as_rmm_log(""));
}

TEST(RmmLog, BlocksAreMemoryOfTheirOwn) {
  const MemoryHistory history = parse(kHeader + row(1, "allocate", 0x1000, 300) +
                                      row(2, "allocate", 0x1200, 5 * kMiB) + row(3, "free", 0x1000, 300));
  EXPECT_EQ(history.incomplete, "");
  EXPECT_TRUE(history.requests_only);
  const DeviceHistory& device = history.devices.at(0);
  EXPECT_EQ(device.events.size(), 4u) << "a free is two events";
  const Moment both = moment_at(device, 2);
  EXPECT_EQ(both.contradictions, 0u);
  EXPECT_EQ(both.reserved, 5 * kMiB + 300) << "nothing is rounded";
  EXPECT_EQ(moment_at(device, 4).reserved, 5 * kMiB);
  EXPECT_EQ(moment_at(device, 0).reserved, 0u);
  EXPECT_EQ(lives_of(device).blocks.size(), 2u);
}

TEST(RmmLog, WhatIsServedWhenAskedAgainIsNoFailure) {
  const MemoryHistory history = parse(
      kHeader + row(1, "allocate", 0x1000, 100) + row(2, "allocate failure", 0, kMiB) +
      row(3, "allocate", 0x9000, 7, 8) + row(3, "free", 0x1000, 100) + row(4, "allocate failure", 0, kMiB) +
      row(5, "allocate", 0x100000, kMiB) + row(6, "allocate failure", 0, 2 * kMiB) +
      row(7, "allocate", 0x800000, kMiB) + row(8, "allocate failure", 0, 2 * kMiB, 8));
  EXPECT_EQ(history.remark, "1 request was served when asked again");
  const HistoryFindings found = findings_of(history);
  EXPECT_EQ(found.failures, 2u) << "the thread asked for less then; and the one at the end";
  EXPECT_EQ(found.failure->bytes, 2 * kMiB);
}

TEST(RmmLog, TheNextDayComesAfterMidnight) {
  const MemoryHistory history = parse(
      "7,23:59:59.900000,allocate,0x10,1,0x0\n7,23:59:59.800000,allocate,0x20,1,0x0\n"
      "7,00:00:00.100000,allocate,0x30,1,0x0\n");
  const auto& events = history.devices.at(0).events;
  EXPECT_EQ(events[1].microseconds, events[0].microseconds) << "threads write in turns";
  EXPECT_EQ(events[2].microseconds - events[0].microseconds, 200'000u);
}

TEST(RmmLog, WhatIsMissingIsSaid) {
  const MemoryHistory late = parse(row(1, "free", 0x1000, 100) + row(2, "allocate", 0x1000, 50) +
                                   row(3, "free", 0x1000, 50) + row(4, "free", 0x1000, 50));
  EXPECT_EQ(late.incomplete, "1 block was allocated before the log begins");
  EXPECT_EQ(late.passed_over, 1u) << "freed twice";
  EXPECT_EQ(moment_at(late.devices.at(0), 0).blocks.size(), 1u);
  const MemoryHistory lost = parse(kHeader + row(1, "allocate", 0x1000, 0x100) +
                                   row(1, "allocate", 0x1100, 0x100) + row(2, "allocate", 0x1080, 0x100));
  EXPECT_EQ(lost.incomplete, "2 frees are missing");
  EXPECT_EQ(moment_at(lost.devices.at(0), lost.devices.at(0).events.size()).reserved, 0x100u);
  const MemoryHistory cut = parse(kHeader + row(1, "allocate", 0x1000, 100) + "7,10:00:02.0000");
  EXPECT_EQ(cut.incomplete, "the file ends within line 3");
  const MemoryHistory mixed = parse(row(1, "allocate", 0x1000, 100) + "INFO Executor: a line of Spark's\n");
  EXPECT_EQ(mixed.passed_over, 1u);
  std::istringstream other("Thread,Time\n1,2\n");
  std::string error;
  EXPECT_FALSE(parse_rmm_log(other, 0, &error));
  EXPECT_THAT(error, HasSubstr("no log of RMM's"));
}

// A verdict needs to know how much there was: from the user, or from what was in use before.
TEST(RmmLog, TheVerdictFollowsFromWhatIsKnown) {
  const std::string most =
      kHeader + row(1, "allocate", 0x10000000, 40 * kMiB) + row(2, "allocate", 0x20000000, 20 * kMiB);
  const MemoryHistory less =
      parse(most + row(3, "free", 0x10000000, 40 * kMiB) + row(4, "allocate failure", 0, 30 * kMiB));
  EXPECT_EQ(findings_of(less).verdict.cause, Cause::kFragmentation);
  EXPECT_THAT(findings_of(less).verdict.text, HasSubstr("60.00 MiB that were in use earlier"));
  const MemoryHistory more = parse(most + row(4, "allocate failure", 0, 30 * kMiB));
  EXPECT_EQ(findings_of(more).verdict.cause, Cause::kUnknown);
  EXPECT_EQ(findings_of(more, 80 * kMiB).verdict.cause, Cause::kCapacity);
  EXPECT_THAT(findings_of(more, 80 * kMiB).verdict.text, HasSubstr("10.00 MiB too much"));
  EXPECT_EQ(findings_of(more, 100 * kMiB).verdict.cause, Cause::kFragmentation);
  EXPECT_EQ(findings_of(more).holdings.free, std::nullopt);
}

// Whatever the text is, all that is made of a log is made or it is refused.
bool reported(const std::string& text) {
  std::istringstream lines(text);
  std::string error;
  const auto history = parse_rmm_log(lines, 0, &error);
  if (!history) {
    EXPECT_NE(error, "");
    return false;
  }
  const HistoryFindings found = findings_of(*history, 64 * kMiB);
  const SnapshotReport report{"damaged", *history, found};
  EXPECT_THAT(snapshot_text(report), HasSubstr("The log\n"));
  EXPECT_FALSE(snapshot_json(report).empty());
  EXPECT_THAT(snapshot_page(report), HasSubstr("</html>"));
  EXPECT_THAT(perfetto_of(*history, nullptr).bytes, HasSubstr("GPU "));
  EXPECT_TRUE(parse_snapshot(snapshot_of(*history), &error)) << error;
  return true;
}

TEST(RmmLog, ChangedBytesNeverCrash) {
  const std::string whole = bytes_of(kGolden);
  const char* const cases = std::getenv("SPILLWAY_FUZZ_CASES");
  const char* const seed = std::getenv("SPILLWAY_FUZZ_SEED");
  std::mt19937_64 random(seed != nullptr ? std::strtoull(seed, nullptr, 10) : 1);
  const uint64_t count = cases != nullptr ? std::strtoull(cases, nullptr, 10) : 300;
  const std::string alphabet = "0123456789abcdefx,:.\n\r\"(nil)allocate free";
  size_t told = 0;
  for (uint64_t i = 0; i < count; ++i) {
    std::string bytes = whole;
    for (uint64_t changes = 1 + random() % 30; changes > 0; --changes) {
      const size_t at = random() % bytes.size();
      if (random() % 4 == 0) bytes.erase(at, random() % 80);
      if (bytes.empty()) break;
      bytes[at % bytes.size()] =
          random() % 4 == 0 ? static_cast<char>(random()) : alphabet[random() % alphabet.size()];
    }
    told += reported(bytes);
  }
  EXPECT_GT(told, count / 2);
}

using RmmCommand = CommandTest;

TEST_F(RmmCommand, ReportsALogWordForWord) {
  std::filesystem::copy_file(kGolden, folder() / "run.dev1.csv");
  const Ran ran = run({"report", "run.dev1.csv", "--capacity", "48MiB"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  const std::string expected = std::string(GOLDEN_FOLDER) + "/rmm.txt";
  if (std::getenv("SPILLWAY_UPDATE_GOLDEN") != nullptr) std::ofstream(expected) << ran.out;
  EXPECT_EQ(ran.out, bytes_of(expected));
  EXPECT_EQ(run({"report", "run.dev1.csv", "--incident", "1"}).code, 2);
}

TEST_F(RmmCommand, GivesTheRequestsToOtherAllocators) {
  std::filesystem::copy_file(kGolden, folder() / "run.dev1.csv");
  const Ran ran = run({"replay", "run.dev1.csv", "--json"});
  ASSERT_EQ(ran.code, 0) << ran.err;
  const auto data = nlohmann::json::parse(ran.out);
  EXPECT_EQ(data["capacity_bytes"], nullptr) << "a log does not say";
  EXPECT_EQ(data["allocations"], 42);
  EXPECT_EQ(data["allocators"].size(), 3u);
  EXPECT_GE(data["allocators"][2]["smallest_bytes"], 58 * kMiB);
}

TEST_F(RmmCommand, SaysWhatGrewBetweenTwoSteps) {
  std::filesystem::copy_file(kGolden, folder() / "run.dev1.csv");
  const Ran ran = run({"diff", "run.dev1.csv", "--steps", "3,6"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("3 to 6  thread 1980043 (2.00 MiB to 4.00 MiB)\n"));
}

TEST_F(RmmCommand, WritesASnapshotThatTellsTheSame) {
  std::filesystem::copy_file(kGolden, folder() / "run.dev1.csv");
  ASSERT_EQ(run({"report", "run.dev1.csv", "--pickle", "run.pickle"}).code, 0);
  const auto log = nlohmann::json::parse(run({"report", "run.dev1.csv", "--json"}).out);
  const auto pickle = nlohmann::json::parse(run({"report", "run.pickle", "--json"}).out);
  EXPECT_EQ(pickle["memory"]["in_use_bytes"], log["memory"]["in_use_bytes"]);
  EXPECT_EQ(pickle["holders"], log["holders"]);
  EXPECT_EQ(pickle["history"]["contradictions"], 0);
}

}  // namespace
}  // namespace spillway::tools
