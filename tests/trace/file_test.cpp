// A trace of one thread: what is written is read; what cannot be opened says why.
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <csignal>
#include <fstream>

#include "tests/trace/support.h"

namespace spillway::trace {
namespace {

using ::testing::HasSubstr;

TEST(TraceFile, GivesBackRecordsNamesAndSettings) {
  const TemporaryFolder folder;
  auto trace = open_or_fail(folder / "t");
  const uint64_t forward = trace->intern("forward");
  trace->set("limit", "1 GiB");
  for (uint64_t i = 0; i < 100; ++i) trace->write(numbered(1, i));
  trace->set("limit", "2 GiB");

  const Contents contents = read_or_fail(folder / "t");
  ASSERT_EQ(contents.records.size(), 100u);
  for (uint64_t i = 0; i < 100; ++i) {
    EXPECT_EQ(contents.records[i].address, i);
    EXPECT_EQ(contents.records[i].stamp, i + 1);
    EXPECT_TRUE(is_numbered(contents.records[i]));
  }
  EXPECT_EQ(contents.names.at(forward), "forward");
  EXPECT_EQ(contents.settings.at("limit"), "2 GiB");
  EXPECT_EQ(contents.process, static_cast<uint64_t>(::getpid()));
  EXPECT_GT(contents.started_ns, 1'700'000'000'000'000'000u);
  EXPECT_EQ(contents.overwritten, 0u);
  EXPECT_EQ(contents.torn, 0u);
  EXPECT_EQ(contents.incomplete, "");
  EXPECT_FALSE(contents.closed);
  trace.reset();
  EXPECT_TRUE(read_or_fail(folder / "t").closed);
}

TEST(TraceFile, KeepsTheNewestRecordsOfARing) {
  const TemporaryFolder folder;
  auto trace = open_or_fail(folder / "t", {.rings = 2, .records_per_ring = 16});
  for (uint64_t i = 0; i < 1003; ++i) trace->write(numbered(1, i));
  const Contents contents = read_or_fail(folder / "t");
  ASSERT_EQ(contents.records.size(), 16u);
  EXPECT_EQ(contents.records.front().address, 1003u - 16);
  EXPECT_EQ(contents.records.back().address, 1002u);
  EXPECT_EQ(contents.overwritten, 1003u - 16);
  EXPECT_EQ(contents.torn, 0u);
}

TEST(TraceFile, KeepsRareEventsHoweverManyOthersCome) {
  const TemporaryFolder folder;
  auto trace = open_or_fail(folder / "t", {.rings = 1, .records_per_ring = 16});
  for (uint64_t i = 0; i < 1000; ++i) {
    Record record = numbered(1, i);
    if (i % 100 == 0) record.kind = Kind::kOom;
    trace->write(record);
  }
  const Contents contents = read_or_fail(folder / "t");
  uint64_t failures = 0;
  for (const Record& record : contents.records) {
    if (record.kind != Kind::kOom) continue;
    EXPECT_EQ(record.address, 100 * failures);
    ++failures;
  }
  EXPECT_EQ(failures, 10u);
  EXPECT_EQ(contents.overwritten, 990u - 16);
  EXPECT_EQ(contents.overwritten_rare, 0u);
}

TEST(TraceFile, GivesOneIndexToOneText) {
  const TemporaryFolder folder;
  auto trace = open_or_fail(folder / "t");
  const uint64_t a = trace->intern("a");
  const uint64_t b = trace->intern("b");
  EXPECT_NE(a, 0u);
  EXPECT_NE(a, b);
  EXPECT_EQ(trace->intern("a"), a);
  EXPECT_NE(trace->intern(""), 0u);
}

TEST(TraceFile, StopsNamingWhenTheSideTableIsFullAndStaysReadable) {
  const TemporaryFolder folder;
  auto trace = open_or_fail(folder / "t", {.side_table_bytes = 4096});
  std::map<uint64_t, std::string> given;
  uint64_t index = 1;
  for (int i = 0; index != 0; ++i) {
    const std::string text = "name number " + std::to_string(i);
    index = trace->intern(text);
    if (index != 0) given[index] = text;
  }
  EXPECT_GT(given.size(), 100u);
  EXPECT_EQ(trace->intern("name number 0"), 1u);
  trace->set("key", std::string(5000, 'x'));
  const Contents contents = read_or_fail(folder / "t");
  EXPECT_EQ(contents.names, given);
  EXPECT_EQ(contents.incomplete, "");
}

TEST(TraceFile, ReplacesAnOldFileWithoutTouchingWhoStillMapsIt) {
  const TemporaryFolder folder;
  auto old_trace = open_or_fail(folder / "t");
  auto new_trace = open_or_fail(folder / "t");
  old_trace->write(numbered(1, 1));
  new_trace->write(numbered(2, 2));
  const Contents contents = read_or_fail(folder / "t");
  ASSERT_EQ(contents.records.size(), 1u);
  EXPECT_EQ(contents.records[0].stream, 2u);
}

// A program inherits SPILLWAY_TRACE from the one that starts it.
TEST(TraceFile, OfALivingProcessIsNotReplaced) {
  const TemporaryFolder folder;
  auto trace = open_or_fail(folder / "t");
  trace->write(numbered(1, 0));
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    std::string error;
    auto mine = Trace::open(folder / "t", {}, &error);
    ::_exit(mine && mine->path() == (folder / "t") + "." + std::to_string(::getpid()) ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  trace->write(numbered(1, 1));
  EXPECT_EQ(read_or_fail(folder / "t").records.size(), 2u);
}

std::string open_error(const std::string& path, const Options& options = {}) {
  std::string error;
  EXPECT_EQ(Trace::open(path, options, &error), nullptr);
  return error;
}

TEST(TraceFile, SaysWhyItCannotBeOpened) {
  const TemporaryFolder folder;
  EXPECT_THAT(open_error(folder / "absent/t"), HasSubstr("is there a folder '" + (folder / "absent") + "'?"));
  EXPECT_THAT(open_error(folder / ""), HasSubstr("not a regular file"));
  EXPECT_THAT(open_error("/dev/null"), HasSubstr("not a regular file"));
  EXPECT_THAT(open_error("/proc/t"), HasSubstr("cannot be created"));
  std::ofstream(folder / "text") << "somebody's notes";
  EXPECT_THAT(open_error(folder / "text"), HasSubstr("not a trace file"));
  EXPECT_EQ(std::filesystem::file_size(folder / "text"), 16u);
  EXPECT_THAT(open_error(folder / "t", {.rings = 0}), HasSubstr("rings must be"));
  EXPECT_THAT(open_error(folder / "t", {.records_per_ring = 1000}), HasSubstr("a power of two"));
  EXPECT_FALSE(std::filesystem::exists(folder / "t"));
}

TEST(TraceFile, WhatWouldKeepItFromBeingMadeIsKnownBefore) {
  const TemporaryFolder folder;
  EXPECT_EQ(Trace::obstacle(folder / "t"), "");
  EXPECT_FALSE(std::filesystem::exists(folder / "t"));
  EXPECT_THAT(Trace::obstacle(folder / "absent/t"), HasSubstr("is there a folder"));
  EXPECT_THAT(Trace::obstacle(folder / ""), HasSubstr("not a regular file"));
  std::ofstream(folder / "text") << "somebody's notes";
  EXPECT_THAT(Trace::obstacle(folder / "text"), HasSubstr("not a trace file"));
  open_or_fail(folder / "t").reset();
  EXPECT_EQ(Trace::obstacle(folder / "t"), "") << "a trace may be replaced";
}

// A size limit stands in for a full disk: allocation of the space fails in the same place.
TEST(TraceFile, SaysThatThereIsNoSpaceAndLeavesNoFile) {
  const TemporaryFolder folder;
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit limit{1 << 20, 1 << 20};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    std::string error;
    const bool refused = Trace::open(folder / "t", {}, &error) == nullptr;
    const bool clear = error.find("bytes of disk") != std::string::npos;
    ::_exit(refused && clear && !std::filesystem::exists(folder / "t") ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace spillway::trace
