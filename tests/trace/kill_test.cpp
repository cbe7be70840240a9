// SIGKILL at random instants of four writing threads: the file reads, its records are whole and consecutive,
// and it names the step that the process was in.
#include <sys/mman.h>
#include <sys/wait.h>

#include <atomic>
#include <csignal>
#include <random>
#include <thread>
#include <vector>

#include "tests/trace/support.h"

namespace spillway::trace {
namespace {

constexpr uint64_t kWriters = 4;
constexpr uint64_t kRecordsPerStep = 50;

// Outlives the killed process: what the reader must at least find.
struct Progress {
  std::atomic<uint64_t> ready, step_begun, step_recorded;
  std::atomic<uint64_t> written[kWriters];
};

Record step_record(uint64_t order, uint64_t step) {
  Record record;
  record.order = order;
  record.address = step;
  record.bytes = mixed(step);
  record.kind = Kind::kStepBegin;
  return record;
}

void write_for_ever(Trace& trace, Progress& progress, uint64_t writer) {
  progress.ready.fetch_add(1);
  for (uint64_t sequence = 0, step = 0;; ++sequence) {
    if (writer == 0 && sequence % kRecordsPerStep == 0) {
      progress.step_begun.store(++step);
      trace.write(step_record(sequence, step));
      progress.step_recorded.store(step);
    }
    trace.write(numbered(writer, sequence));
    progress.written[writer].store(sequence + 1, std::memory_order_relaxed);
  }
}

[[noreturn]] void child(const std::string& path, Progress& progress) {
  std::string error;
  const auto trace = Trace::open(path, {.rings = 8, .records_per_ring = 1024}, &error);
  if (!trace) ::_exit(1);
  std::vector<std::thread> threads;
  for (uint64_t writer = 0; writer < kWriters; ++writer) {
    threads.emplace_back([&, writer] { write_for_ever(*trace, progress, writer); });
  }
  for (auto& thread : threads) thread.join();
  ::_exit(1);
}

void verify(const Contents& contents, const Progress& progress) {
  EXPECT_EQ(contents.incomplete, "");
  EXPECT_FALSE(contents.closed);
  EXPECT_LE(contents.torn, kWriters);
  std::vector<uint64_t> last(kWriters, ~uint64_t{0});
  std::vector<uint64_t> count(kWriters, 0);
  uint64_t last_step = 0;
  for (const Record& record : contents.records) {
    if (record.kind == Kind::kStepBegin) {
      EXPECT_EQ(record.bytes, mixed(record.address));
      EXPECT_TRUE(last_step == 0 || record.address == last_step + 1);
      last_step = record.address;
      continue;
    }
    ASSERT_LT(record.stream, kWriters);
    EXPECT_TRUE(is_numbered(record)) << "record " << record.address << " of writer " << record.stream;
    const uint64_t before = last[record.stream];
    EXPECT_TRUE(before == ~uint64_t{0} || record.address == before + 1)
        << record.address << " after " << before;
    last[record.stream] = record.address;
    ++count[record.stream];
  }
  for (uint64_t writer = 0; writer < kWriters; ++writer) {
    const uint64_t written = progress.written[writer].load();
    EXPECT_GE(last[writer] + 1, written) << "a record that was written is missing, writer " << writer;
    EXPECT_GE(count[writer] + 1, std::min<uint64_t>(written, 1024));
  }
  EXPECT_GE(last_step, progress.step_recorded.load());
  EXPECT_LE(last_step, progress.step_begun.load());
}

TEST(TraceKill, LeavesAReadableFileAtAnyInstant) {
  const TemporaryFolder folder;
  void* shared = ::mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  std::mt19937 random(20240607);
  uint64_t full = 0;
  for (int round = 0; round < 50; ++round) {
    SCOPED_TRACE(round);
    auto* progress = new (shared) Progress{};
    const pid_t pid = ::fork();
    if (pid == 0) child(folder / "t", *progress);
    while (progress->ready.load() < kWriters) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 4000));
    ASSERT_EQ(::kill(pid, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(::waitpid(pid, &status, 0), pid);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the writer ended by itself";
    const Contents contents = read_or_fail(folder / "t");
    verify(contents, *progress);
    full += contents.overwritten > 0 ? 1 : 0;
    if (HasFailure()) break;
  }
  EXPECT_GT(full, 0u) << "no ring ever filled: the test did not reach overwriting";
  ::munmap(shared, sizeof(Progress));
}

}  // namespace
}  // namespace spillway::trace
