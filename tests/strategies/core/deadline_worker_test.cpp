// The helper's thread, whose driver calls the process's exit waits for.
#include "strategies/framework/deadline_worker.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <thread>

#include "strategies/processes/primary_context_guard.h"

namespace spillway::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Before any thread is made: a child of fork has none.
TEST(DeadlineWorker, TheProcesssExitWaitsForWhatItDoes) {
  void* memory = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* const ended = new (memory) std::atomic<bool>(false);
  const pid_t child = fork();
  if (child == 0) {
    static auto* const helper = new DeadlineWorker;
    std::atomic<bool> began{false};
    helper->run(
        [&] {
          began = true;
          std::this_thread::sleep_for(milliseconds(100));
          *ended = true;
        },
        steady_clock::now() + std::chrono::seconds(10), [] { return true; });
    while (!began) std::this_thread::yield();
    std::exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(*ended);
  munmap(memory, 4096);
}

// Its first work may be asked for while the process ends, by a thread that was just started.
TEST(DeadlineWorker, DoesNothingOnceTheProcessEnds) {
  const pid_t child = fork();
  if (child == 0) {
    static bool worked = false;
    std::atexit([] {  // as a library's that was loaded before; such handlers run in the reverse order
      static auto* const helper = new DeadlineWorker;
      helper->run([] { worked = true; }, steady_clock::now() + std::chrono::seconds(10));
      ::_exit(worked ? 3 : 0);
    });
    end_spans_before_what_is_loaded();
    std::exit(1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(DeadlineWorker, SaysWhetherTheWorkEnded) {
  static auto* const helper = new DeadlineWorker;
  std::atomic<bool> go{false};
  EXPECT_TRUE(helper->run([] {}, steady_clock::now() + std::chrono::seconds(10)));
  EXPECT_FALSE(helper->run([&] { go.wait(false); }, steady_clock::now() + milliseconds(10)));
  EXPECT_FALSE(helper->run([] {}, steady_clock::now() + milliseconds(10))) << "busy";
  go = true;
  go.notify_all();
  EXPECT_TRUE(helper->run_when_free([] {}, steady_clock::now() + std::chrono::seconds(10)));
}

// They are the program's, and its handlers may not run where Spillway holds a lock.
TEST(DeadlineWorker, TakesNoneOfTheProgramsSignals) {
  static auto* const helper = new DeadlineWorker;
  sigset_t blocked;
  sigemptyset(&blocked);
  ASSERT_TRUE(helper->run([&] { pthread_sigmask(SIG_SETMASK, nullptr, &blocked); },
                          steady_clock::now() + std::chrono::seconds(10)));
  EXPECT_EQ(sigismember(&blocked, SIGUSR1), 1);
  EXPECT_EQ(sigismember(&blocked, SIGALRM), 1);
  sigset_t ours;
  pthread_sigmask(SIG_SETMASK, nullptr, &ours);
  EXPECT_EQ(sigismember(&ours, SIGUSR1), 0);
}

// One that hangs keeps no other owner waiting.
TEST(DeadlineWorker, EachOwnerHasItsOwn) {
  struct One;
  struct Other;
  EXPECT_EQ(&DeadlineWorker::of<One>(), &DeadlineWorker::of<One>());
  EXPECT_NE(&DeadlineWorker::of<One>(), &DeadlineWorker::of<Other>());
}

}  // namespace
}  // namespace spillway::testing
