// A process of the user's that others ask for memory: here it has none, in a process of its own.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <string>
#include <thread>

#include "processes/ledger.h"
#include "strategies/core/core.h"
#include "tests/allocator/simulated.h"

namespace spillway::testing {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::seconds;

class PeerServiceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* const build = std::getenv("SPILLWAY_BUILD_DIR");
    ASSERT_NE(build, nullptr) << "ctest sets SPILLWAY_BUILD_DIR, the build's folder";
    ::setenv("SPILLWAY_LEDGER", name_.c_str(), 1);
    ::setenv("SPILLWAY_DRIVER", (std::string(build) + "/lib/sim/libcuda.so.1").c_str(), 1);
    // Before this process has threads, or a driver.
    if (member_ = ::fork(); member_ != 0) return;
    const spillway_core_table* const core = spillway_core();
    if (core == nullptr || core->join_ledger([] { return 0u; }) != SPILLWAY_OK) ::_exit(1);
    for (;;) ::pause();
  }
  void TearDown() override {
    if (member_ <= 0) return;  // nobody was started, and -1 is every process that there is
    ::kill(member_, SIGKILL);
    ::waitpid(member_, nullptr, 0);
    ::shm_unlink(("/" + name_).c_str());
  }
  bool has_ended() const { return ::waitpid(member_, nullptr, WNOHANG) != 0; }

  const std::string name_ = "spillway-test-" + std::to_string(::getpid());
  pid_t member_ = -1;
};

DeviceUuid simulated_card() {
  CUuuid uuid{};
  EXPECT_EQ(simulated_table().cuInit(0), CUDA_SUCCESS);
  EXPECT_EQ(simulated_table().cuDeviceGetUuid(&uuid, 0), CUDA_SUCCESS);
  DeviceUuid out{};
  std::copy_n(reinterpret_cast<const uint8_t*>(uuid.bytes), out.size(), out.begin());
  return out;
}

TEST_F(PeerServiceTest, WhoHasNothingToGiveLetsNobodyWait) {
  std::string why_not;
  const auto ledger = Ledger::join(name_, &why_not);
  ASSERT_NE(ledger, nullptr) << why_not;
  while (ledger->peers() == 0 && !has_ended()) std::this_thread::yield();
  ASSERT_EQ(ledger->peers(), 1u);
  for (const DeviceUuid& device : {simulated_card(), DeviceUuid{}}) {
    const auto start = Clock::now();
    EXPECT_EQ(ledger->ask(device, 1 << 20, start + seconds(20), [] { return false; }), 0u);
    EXPECT_LT(Clock::now() - start, seconds(10)) << "not at the deadline, but when it has answered";
  }
}

}  // namespace
}  // namespace spillway::testing
