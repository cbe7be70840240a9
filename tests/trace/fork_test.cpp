// A forked child writes a file of its own and never its parent's.
#include <sys/wait.h>

#include <functional>
#include <thread>

#include "tests/sanitized.h"
#include "tests/trace/support.h"

namespace spillway::trace {
namespace {

// Runs `body` in a child; returns its pid. The child's exit status must be what `body` returns: 0.
pid_t run_child(const std::function<int()>& body) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(body());
  int status = 0;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0);
  return pid;
}

TEST(TraceFork, ChildOpensAFileOfItsOwn) {
  const TemporaryFolder folder;
  auto trace = open_or_fail(folder / "t");
  const uint64_t name = trace->intern("named before the fork");
  trace->set("limit", "1 GiB");
  trace->write(numbered(1, 0));
  const pid_t pid = run_child([&] {
    for (uint64_t i = 0; i < 5; ++i) trace->write(numbered(2, i));
    return trace->intern("named before the fork") == name && trace->intern("named by the child") != name ? 0
                                                                                                         : 1;
  });
  trace->write(numbered(1, 1));

  const Contents parent = read_or_fail(folder / "t");
  ASSERT_EQ(parent.records.size(), 2u);
  EXPECT_EQ(parent.records[1].stream, 1u);
  EXPECT_EQ(parent.names.size(), 1u);
  const Contents child = read_or_fail((folder / "t.") + std::to_string(pid));
  ASSERT_EQ(child.records.size(), 5u);
  EXPECT_EQ(child.records[0].stream, 2u);
  EXPECT_EQ(child.process, static_cast<uint64_t>(pid));
  EXPECT_EQ(child.names.at(name), "named before the fork");
  EXPECT_EQ(child.names.size(), 2u);
  EXPECT_EQ(child.settings.at("limit"), "1 GiB");
}

TEST(TraceFork, ChildWithoutARecordLeavesNoTrace) {
  const TemporaryFolder folder;
  auto trace = open_or_fail(folder / "t");
  trace->write(numbered(1, 0));
  const pid_t pid = run_child([&] {
    std::thread([] {}).join();
    trace.reset();
    return 0;
  });
  EXPECT_FALSE(std::filesystem::exists((folder / "t.") + std::to_string(pid)));
  EXPECT_FALSE(read_or_fail(folder / "t").closed) << "the child closed its parent's trace";
}

TEST(TraceFork, AProcessThatExitsClosesATraceThatItKeeps) {
  const TemporaryFolder folder;
  for (const bool in_order : {true, false}) {
    run_child([&] {
      Trace* kept = open_or_fail(folder / "t").release();
      kept->write(numbered(1, 0));
      if (in_order) std::exit(0);
      return 0;  // by _exit
    });
    const Contents contents = read_or_fail(folder / "t");
    EXPECT_EQ(contents.records.size(), 1u);
    EXPECT_EQ(contents.closed, in_order);
  }
}

TEST(TraceFork, GrandchildToo) {
  const TemporaryFolder folder;
  auto trace = open_or_fail(folder / "t");
  trace->write(numbered(1, 0));
  run_child([&] {
    trace->write(numbered(2, 0));
    const pid_t pid = run_child([&] {
      std::thread([&] { trace->write(numbered(3, 0)); }).join();
      trace->write(numbered(3, 1));
      return trace->path() == (folder / "t.") + std::to_string(::getpid()) ? 0 : 1;
    });
    trace->write(numbered(2, 1));
    const Contents own = read_or_fail(trace->path());
    const Contents grandchild = read_or_fail((folder / "t.") + std::to_string(pid));
    return own.records.size() == 2 && grandchild.records.size() == 2 && !testing::Test::HasFailure() ? 0 : 1;
  });
  EXPECT_EQ(read_or_fail(folder / "t").records.size(), 1u);
}

TEST(TraceFork, ChildThatCannotOpenItsFileCountsWhatItDrops) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "sub");
  auto trace = open_or_fail(folder / "sub/t");
  trace->write(numbered(1, 0));
  std::filesystem::rename(folder / "sub", folder / "moved");
  run_child([&] {
    for (uint64_t i = 0; i < 7; ++i) trace->write(numbered(2, i));
    const bool has_no_file = trace->path().empty();  // its parent's is not its own
    return has_no_file && trace->dropped() == 7 && trace->intern("x") == 0 ? 0 : 1;
  });
  trace->write(numbered(1, 1));
  EXPECT_EQ(read_or_fail(folder / "moved/t").records.size(), 2u);
  EXPECT_EQ(trace->dropped(), 0u);
}

TEST(TraceFork, ForksWhileThreadsWriteAndIntern) {
  const TemporaryFolder folder;
  auto trace = open_or_fail(folder / "t");
  constexpr uint64_t kTexts = kSanitized ? 500 : 5000;
  const auto intern = [&](uint64_t i) { trace->intern("text " + std::to_string(i % kTexts)); };
  if (kSanitized) {
    // A sanitizer's allocator stays locked in a child that was forked beside a thread inside of it; the C
    // library's does not. Texts that are known allocate nothing.
    for (uint64_t i = 0; i < kTexts; ++i) intern(i);
  }
  std::atomic<bool> ready{false}, stop{false};
  std::thread writer([&] {
    trace->write(numbered(1, 0));  // its first record allocates
    ready.store(true);
    for (uint64_t i = 1; !stop.load(std::memory_order_relaxed); ++i) {
      trace->write(numbered(1, i));
      intern(i);
    }
  });
  while (!ready.load()) std::this_thread::yield();
  for (int round = 0; round < 50; ++round) {
    const pid_t pid = run_child([&] {
      trace->write(numbered(2, 0));
      return trace->intern("after the fork") == 0 ? 1 : 0;
    });
    EXPECT_EQ(read_or_fail((folder / "t.") + std::to_string(pid)).records.size(), 1u);
    std::filesystem::remove((folder / "t.") + std::to_string(pid));
    if (HasFailure()) break;
  }
  stop.store(true);
  writer.join();
  for (const Record& record : read_or_fail(folder / "t").records) EXPECT_EQ(record.stream, 1u);
}

}  // namespace
}  // namespace spillway::trace
