// The gate: functions that it does not hold, and a system that does not give what it needs. What would be
// said and noted for the user is kept by the test.
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/membarrier.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <string>
#include <thread>

#include "interpose/gate/gate.h"
#include "interpose/hooks/inside.h"
#include "interpose/hooks/unknown_symbols.h"
#include "interpose/process.h"

namespace spillway::interpose {

std::string said;
ProcessSummary test_summary{};

void say(const char* text, const char*) {
  said += text;
}
ProcessSummary& summary() {
  return test_summary;
}

namespace {

constexpr uint64_t kSecondUs = 1'000'000;

int twice(int number) {
  return 2 * number;
}
int thrice(int number) {
  return 3 * number;
}
double sum(int a, long b, double c, float d, const char* e, int f, int g, int h, double i) {
  return a + static_cast<double>(b) + c + d + e[0] + f + g + h + i;
}

template <class Function>
Function* found(Function* function, const char* name, int cuda_version = 0) {
  return reinterpret_cast<Function*>(stub_for(reinterpret_cast<void*>(function), name, cuda_version));
}

bool can_close() {
  if (close_gate(kSecondUs) == 0) return false;
  open_gate();
  return true;
}

// In a process of its own: what was called stays called, and what the system has refused stays refused.
template <class Body>
void alone(Body body) {
  EXPECT_EXIT(
      {
        body();
        ::_exit(testing::Test::HasFailure() ? 1 : 0);
      },
      testing::ExitedWithCode(0), "");
}

// What must be there before a process can be refused what the gate closes with; "": all of it.
std::string missing_in_this_kernel() {
  if (::prctl(PR_GET_SECCOMP, 0, 0, 0, 0) < 0) return "this kernel has no seccomp, so no call can be refused";
  const long commands = ::syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
  if (commands < 0 || (commands & MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0)
    return "this kernel has no membarrier that could be refused";
  return "";
}

#define SKIP_WHERE_NOTHING_CAN_BE_REFUSED() \
  if (const std::string missing = missing_in_this_kernel(); !missing.empty()) GTEST_SKIP() << missing

// True: from now on the calling thread's process gets an error from membarrier.
bool refuse_membarrier() {
  sock_filter filter[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
                          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program{std::size(filter), filter};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST(Gate, StaysOpenWhereAThreadCanNotBeListed) {
  alone([] {
    pthread_key_t key = 0;
    while (pthread_key_create(&key, nullptr) == 0) continue;
    {
      const Passage passage;
    }
    EXPECT_FALSE(can_close()) << "nobody would take the thread out of the list when it ends";
  });
}

TEST(Gate, StaysOpenWhereThreadsCanNotBeToldThatItCloses) {
  SKIP_WHERE_NOTHING_CAN_BE_REFUSED();
  alone([] {
    EXPECT_TRUE(can_close());
    EXPECT_FALSE(gate_needs_fence);
    ASSERT_TRUE(refuse_membarrier()) << std::strerror(errno);
    EXPECT_FALSE(can_close());
  });
}

// As a simulated kernel, which computes after its launch and calls the driver meanwhile.
TEST(Gate, WaitsForWorkThatIsNoCallAndForThatAroundACall) {
  alone([] {
    constexpr uint64_t kShortUs = 20'000;
    std::atomic<int> step{0};
    const auto reach = [&](int number) {
      step = number;
      while (step != number + 1) std::this_thread::yield();
    };
    const auto wait_for = [&](int number) {
      while (step != number) std::this_thread::yield();
    };
    std::thread worker([&] {
      const uint32_t before = pass_gate(1);
      {
        const Passage call;
      }
      reach(1);
      const uint32_t work = pass_gate(0);
      reach(3);
      pass_gate(work);
      reach(5);
      pass_gate(before);
      reach(7);
    });
    for (const auto& [number, closes] : {std::pair{1, 0}, {3, 1}, {5, 0}, {7, 1}}) {
      wait_for(number);
      EXPECT_EQ(close_gate(kShortUs), closes) << number;
      if (closes != 0) open_gate();
      step = number + 1;
    }
    worker.join();
  });
}

TEST(Gate, ClosesWithoutMembarrierWhereThreadsPassWithAFence) {
  SKIP_WHERE_NOTHING_CAN_BE_REFUSED();
  alone([] {
    ASSERT_TRUE(refuse_membarrier()) << std::strerror(errno);
    {
      const Passage passage;
    }
    EXPECT_TRUE(gate_needs_fence);
    EXPECT_TRUE(can_close());
  });
}

TEST(Unlisted, PassesArgumentsOnAndIsTheSameForTheSame) {
  alone([] {
    auto* const stub = found(sum, "cuMemSum");
    ASSERT_NE(stub, sum);
    EXPECT_EQ(stub, found(sum, "cuMemSum"));
    EXPECT_NE(reinterpret_cast<void*>(found(twice, "cuMemTwice")), reinterpret_cast<void*>(stub));
    for (int call = 0; call < 2; ++call) EXPECT_EQ(stub(1, 2, 3.5, 4.5F, "A", 6, 7, 8, 9.25), 106.25);
  });
}

TEST(Unlisted, IsNamedOnceItIsCalled) {
  alone([] {
    auto* const first = found(twice, "cuMemTwice");
    auto* const second = found(thrice, "cuMemThrice", 13'020);
    EXPECT_STREQ(test_summary.unlisted, "");
    EXPECT_EQ(second(2) + second(2) + first(2), 16);
    EXPECT_STREQ(test_summary.unlisted, "cuMemThrice of CUDA 13.2, cuMemTwice");
  });
}

TEST(Unlisted, WorkThatPassesTheGateByKeepsItOpenAndIsSaidOnce) {
  alone([] {
    auto* const takes = found(twice, "cuMemTake_v9");
    auto* const launches = found(thrice, "cuLaunchKernel_v9");
    takes(1);
    EXPECT_TRUE(can_close()) << "a launch was found and not called";
    EXPECT_EQ(said, "");
    launches(1);
    EXPECT_FALSE(can_close());
    EXPECT_FALSE(can_close());
    EXPECT_EQ(
        said,
        "memory in use stays where it is: the program calls functions of a newer driver that this version "
        "of Spillway does not know");
  });
}

TEST(Unlisted, ItsFirstCallWaitsForAGateThatIsClosed) {
  alone([] {
    auto* const launches = found(thrice, "cuLaunchKernel_v9");
    std::atomic<bool> over{false};
    ASSERT_EQ(close_gate(kSecondUs), 1);
    std::thread other([&] {
      launches(1);
      over = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_FALSE(over);
    open_gate();
    other.join();
    EXPECT_FALSE(can_close());
  });
}

TEST(Unlisted, AGateThatIsClosingLearnsOfItToo) {
  alone([] {
    auto* const launches = found(thrice, "cuLaunchKernel_v9");
    std::atomic<bool> inside{false};
    std::thread other([&] {
      const Passage passage;
      inside = true;
      while (gate_closed.load() == 0) std::this_thread::yield();
      unlisted_work = true;  // as the first call notes it, in a passage of its own
    });
    while (!inside) std::this_thread::yield();
    EXPECT_EQ(close_gate(kSecondUs), 0);
    other.join();
    EXPECT_EQ(launches(2), 6) << "it is open again";
  });
}

TEST(Unlisted, TheDriversOwnCallsAreNotTheProgramsOnes) {
  alone([] {
    auto* const launches = found(thrice, "cuLaunchKernel_v9");
    {
      const Inside inside;
      EXPECT_EQ(launches(2), 6);
    }
    EXPECT_TRUE(can_close());
    EXPECT_STREQ(test_summary.unlisted, "");
  });
}

TEST(Unlisted, AForkedChildNamesWhatItCallsItself) {
  alone([] {
    auto* const stub = found(twice, "cuMemTwice");
    EXPECT_EQ(stub(1), 2);
    test_summary.unlisted[0] = 0;  // a child's own begins empty
    const pid_t child = ::fork();
    if (child == 0) {
      const bool named = stub(2) == 4 && std::string(test_summary.unlisted) == "cuMemTwice";
      ::_exit(named ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(stub(2), 4);
    EXPECT_STREQ(test_summary.unlisted, "") << "the parent has named it before";
  });
}

TEST(Unlisted, MoreFunctionsThanStubsCountAsCalled) {
  alone([] {
    void* last = nullptr;
    for (uintptr_t function = 1; function <= 257; ++function) {
      last = reinterpret_cast<void*>(function);
      void* const stub = stub_for(last, "cuLaunchKernel_v9", 0);
      EXPECT_EQ(stub == last, function > 256) << function;
      EXPECT_EQ(can_close(), function <= 256) << function;
    }
    stub_for(last, "cuLaunchKernel_v9", 0);
    EXPECT_STREQ(test_summary.unlisted, "cuLaunchKernel_v9");
  });
}

}  // namespace
}  // namespace spillway::interpose
