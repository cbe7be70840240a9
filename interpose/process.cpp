#include "interpose/process.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "interpose/core.h"
#include "interpose/plain_lock.h"

namespace spillway::interpose {
namespace {

constinit ProcessSummary own{};
std::atomic<ProcessSummary*> chosen{nullptr};
PlainMutex<LockOrder::kSummary> choosing;
std::atomic<SummaryFile*> file{nullptr};
std::atomic<bool> is_new_child{false};

void append(char* out, size_t room, const char* text) {
  const size_t held = strnlen(out, room);
  if (held + 1 < room) std::strncat(out, text, room - held - 1);
}

Mode read_mode() {
  const char* named = std::getenv("SPILLWAY_MODE");
  if (named == nullptr || *named == '\0' || std::strcmp(named, "rescue") == 0) return Mode::kRescue;
  if (std::strcmp(named, "observe") == 0) return Mode::kObserve;
  if (std::strcmp(named, "replace") == 0) return Mode::kReplace;
  say("SPILLWAY_MODE is none of observe, rescue, replace, and 'observe' is taken: ", named);
  return Mode::kObserve;
}

SummaryFile* map_file() {
  const char* path = std::getenv("SPILLWAY_RUN_SUMMARY");
  if (path == nullptr || *path == '\0') return nullptr;
  const int descriptor = ::open(path, O_RDWR | O_CLOEXEC);
  if (descriptor < 0) return nullptr;  // `spillway run` has ended, or this process may not see it
  struct stat status{};
  void* at = MAP_FAILED;
  if (::fstat(descriptor, &status) == 0 && status.st_size == static_cast<off_t>(sizeof(SummaryFile)))
    at = ::mmap(nullptr, sizeof(SummaryFile), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  ::close(descriptor);
  if (at == MAP_FAILED) return nullptr;
  auto* mapped = static_cast<SummaryFile*>(at);
  if (mapped->magic == kSummaryMagic && mapped->layout == sizeof(ProcessSummary)) return mapped;
  ::munmap(at, sizeof(SummaryFile));
  return nullptr;
}

ProcessSummary* claim(SummaryFile& summary) {
  const auto self = static_cast<int32_t>(::getpid());
  for (ProcessSummary& slot : summary.processes) {
    int32_t nobody = 0;
    if (slot.process.compare_exchange_strong(nobody, self)) return &slot;
  }
  summary.without_slot.fetch_add(1);
  return nullptr;
}

void describe(ProcessSummary& summary) {
  summary.mode.store(mode());
  if (mode() == Mode::kReplace) summary.replacement.store(Replacement::kWaiting);
  append(summary.program, sizeof summary.program, program_invocation_short_name);
}

// The parent's counts are the parent's.
void in_child() {
  choosing.free_in_child();
  std::memset(static_cast<void*>(&own), 0, sizeof own);
  chosen.store(nullptr);
  Counter::forget();
  is_new_child.store(true);
}

ProcessSummary& choose_one() {
  const Locked lock(choosing);
  ProcessSummary* summary = chosen.load();
  if (summary == nullptr) {
    if (file.load() == nullptr) {
      file.store(map_file());
      pthread_atfork(nullptr, nullptr, in_child);
    }
    if (SummaryFile* shared = file.load()) summary = claim(*shared);
    if (summary == nullptr) summary = &own;
    describe(*summary);
    chosen.store(summary, std::memory_order_release);
  }
  return *summary;
}

// A child of fork has the core that its parent started, which counts on for the parent until it is told.
ProcessSummary& choose() {
  ProcessSummary& summary = choose_one();
  if (is_new_child.exchange(false)) count_in(summary);
  return summary;
}

}  // namespace

Mode mode() {
  static const Mode read = read_mode();
  return read;
}

// In one piece, so that lines of several processes do not mix.
void say(const char* text, const char* more) {
  char line[1024];
  const int length = std::snprintf(line, sizeof line, "spillway: %s%s\n", text, more);
  if (length <= 0) return;
  const size_t bytes =
      static_cast<size_t>(length) < sizeof line ? static_cast<size_t>(length) : sizeof line - 1;
  if (::write(STDERR_FILENO, line, bytes) < 0) return;
}

void give_up(const char* text) {
  say(text, "; run the program without Spillway");
  ::_exit(127);
}

ProcessSummary& summary() {
  ProcessSummary* at = chosen.load(std::memory_order_acquire);
  return at != nullptr ? *at : choose();
}

void Counter::claim() {
  ProcessSummary& all = summary();
  const uint32_t before = all.counting_threads.fetch_add(1);
  shared_ = before >= kCountingThreads - 1;
  mine_ = &all.calls[shared_ ? kCountingThreads - 1 : before];
}

}  // namespace spillway::interpose
