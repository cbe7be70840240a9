// A trace of one thread: what is written is read; what cannot be opened says why.
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <csignal>
#include <fstream>
#include <functional>
#include <vector>

#include "tests/trace/support.h"
#include "trace/writing_process.h"

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

// Changes a file's header, as another process would have written it.
void rewrite(const std::string& path, const std::function<void(Header&, Writer&)>& change) {
  Header header;
  Writer writer;
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.read(reinterpret_cast<char*>(&header), sizeof header);
  file.seekg(kWriterOffset).read(reinterpret_cast<char*>(&writer), sizeof writer);
  change(header, writer);
  header.check = header_check(header);
  writer.check = writer_check(writer);
  file.seekp(0).write(reinterpret_cast<const char*>(&header), sizeof header);
  file.seekp(kWriterOffset).write(reinterpret_cast<const char*>(&writer), sizeof writer);
  ASSERT_TRUE(file.flush());
}

// As a process leaves it that is killed.
void leave_open(const std::string& path) {
  const pid_t child = ::fork();
  if (child == 0) {
    open_or_fail(path).release()->write(numbered(1, 0));
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
}

// Machines and containers that share a volume give out the same ids, to this process too.
TEST(TraceFile, OfAnotherMachineOrContainerIsNotReplaced) {
  const TemporaryFolder folder;
  const auto own = static_cast<uint64_t>(::getpid());
  for (const std::string name : {"machine", "container"}) {
    leave_open(folder / name);
    rewrite(folder / name, [&](Header& header, Writer& writer) {
      header.process = name == "machine" ? own : uint64_t{1} << 22;
      (name == "machine" ? writer.machine : writer.id_space) += 1;
    });
    const auto mine = open_or_fail(folder / name);
    EXPECT_EQ(mine->path(), (folder / name) + "." + std::to_string(own));
    EXPECT_EQ(read_or_fail(folder / name).records.size(), 1u);
    rewrite(mine->path(), [](Header&, Writer& writer) { ++writer.machine; });
    EXPECT_EQ(open_or_fail(folder / name)->path(), mine->path() + ".1");
  }
}

TEST(TraceFile, OfAProcessThatIsGoneIsReplacedThoughItsIdIsTakenAgain) {
  const TemporaryFolder folder;
  leave_open(folder / "t");
  rewrite(folder / "t", [](Header& header, Writer&) { header.process = static_cast<uint64_t>(::getppid()); });
  EXPECT_EQ(open_or_fail(folder / "t")->path(), folder / "t");
}

TEST(TraceFile, WhetherItsWriterRunsIsTold) {
  const TemporaryFolder folder;
  {
    const auto trace = open_or_fail(folder / "t");
    EXPECT_EQ(read_or_fail(folder / "t").writer, Liveness::kRuns);
    rewrite(folder / "t", [](Header&, Writer& writer) { ++writer.id_space; });
    EXPECT_EQ(read_or_fail(folder / "t").writer, Liveness::kUnknown) << "its id means nothing here";
    rewrite(folder / "t", [](Header&, Writer& writer) { --writer.id_space, ++writer.process_start; });
    EXPECT_EQ(read_or_fail(folder / "t").writer, Liveness::kEnded) << "its id was given out again";
    rewrite(folder / "t", [](Header&, Writer& writer) { writer = {}; });
    EXPECT_EQ(read_or_fail(folder / "t").writer, Liveness::kUnknown) << "of an older version";
  }
  const pid_t zombie = ::fork();
  if (zombie == 0) {
    open_or_fail(folder / "zombie").release()->write(numbered(1, 0));
    ::_exit(0);
  }
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(zombie), &info, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(read_or_fail(folder / "zombie").writer, Liveness::kEnded);
  ASSERT_EQ(::waitpid(zombie, nullptr, 0), zombie);
}

TEST(TraceFile, OfAnOlderVersionIsJudgedByItsId) {
  const TemporaryFolder folder;
  leave_open(folder / "t");
  rewrite(folder / "t", [](Header& header, Writer& writer) {
    header.process = static_cast<uint64_t>(::getppid());
    writer = {};
  });
  EXPECT_NE(open_or_fail(folder / "t")->path(), folder / "t");
  rewrite(folder / "t", [](Header& header, Writer& writer) {
    header.process = uint64_t{1} << 22;  // more than ids may be
    writer = {};
  });
  EXPECT_EQ(open_or_fail(folder / "t")->path(), folder / "t");
}

// Of processes that begin at once none takes another's file away.
TEST(TraceFile, ProcessesThatOpenOneAtOnceHaveOneEach) {
  constexpr int kProcesses = 8, kRounds = 20;
  for (int round = 0; round < kRounds; ++round) {
    const TemporaryFolder folder;
    int begin[2], opened[2], end[2];
    ASSERT_EQ(::pipe(begin) + ::pipe(opened) + ::pipe(end), 0);
    std::vector<pid_t> children;
    for (uint64_t i = 0; i < kProcesses; ++i) {
      children.push_back(::fork());
      if (children.back() != 0) continue;
      ::close(begin[1]);
      ::close(end[1]);
      char unread = 0;
      const ssize_t begun = ::read(begin[0], &unread, 1);
      std::string error;
      auto trace = Trace::open(folder / "t", {.rings = 2, .records_per_ring = 16}, &error);
      if (trace != nullptr) trace->write(numbered(i, 0));
      const ssize_t told = ::write(opened[1], &unread, 1);
      const ssize_t ended = ::read(end[0], &unread, 1);
      Contents contents;
      const bool mine = trace != nullptr && read(trace->path(), &contents, &error) &&
                        contents.records.size() == 1 && contents.records[0].stream == i;
      ::_exit(begun == 0 && told == 1 && ended == 0 && mine ? 0 : 1);
    }
    for (const int fd : {begin[0], begin[1], opened[1], end[0]}) ::close(fd);
    char unread = 0;
    for (int i = 0; i < kProcesses; ++i) EXPECT_EQ(::read(opened[0], &unread, 1), 1);
    for (const int fd : {opened[0], end[1]}) ::close(fd);
    for (const pid_t child : children) {
      int status = 0;
      ASSERT_EQ(::waitpid(child, &status, 0), child);
      EXPECT_EQ(status, 0) << "round " << round;
    }
    EXPECT_TRUE(std::filesystem::exists(folder / "t"));
    int files = 0;
    for (const auto& unused : std::filesystem::directory_iterator(folder / ""))
      files += unused.exists() ? 1 : 0;
    EXPECT_EQ(files, kProcesses) << "of their own names none is left";
  }
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
