// NVML's answers to wrong questions, and that it needs no CUDA. What it answers to PyTorch's questions is
// tested from Python.
#include <dlfcn.h>
#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/simulator/driver/support.h"

namespace spillway::test {
namespace {

using testing::HasSubstr;

// A function of the library with any arguments.
template <class... Arguments>
int ask(const char* name, Arguments... arguments) {
  static void* const library = [] {
    const std::string path = std::string(std::getenv("SPILLWAY_BUILD_DIR")) + "/lib/sim/libnvidia-ml.so.1";
    return dlopen(path.c_str(), RTLD_NOW);
  }();
  auto* function = reinterpret_cast<int (*)(Arguments...)>(library ? dlsym(library, name) : nullptr);
  if (!function) {
    ADD_FAILURE() << name << " is missing";
    return -1;
  }
  return function(arguments...);
}

constexpr int kUninitialized = 1, kInvalidArgument = 2, kNotSupported = 3, kNotFound = 6,
              kInsufficientSize = 7, kDriverNotLoaded = 9, kVersionMismatch = 25;

TEST(Nvml, answers_only_between_init_and_shutdown) {
  in_process({}, [] {
    unsigned count = 0;
    void* device = nullptr;
    EXPECT_EQ(ask("nvmlDeviceGetCount_v2", &count), kUninitialized);
    EXPECT_EQ(ask("nvmlShutdown"), kUninitialized);
    EXPECT_EQ(ask("nvmlInit_v2"), 0);
    EXPECT_EQ(ask("nvmlInit"), 0);
    EXPECT_EQ(ask("nvmlDeviceGetHandleByIndex_v2", 0u, &device), 0);
    EXPECT_EQ(ask("nvmlShutdown"), 0);
    EXPECT_EQ(ask("nvmlDeviceGetIndex", device, &count), 0);
    EXPECT_EQ(ask("nvmlShutdown"), 0);
    EXPECT_EQ(ask("nvmlDeviceGetIndex", device, &count), kUninitialized);
  });
}

TEST(Nvml, sees_every_card_and_refuses_wrong_arguments) {
  in_process({{"SPILLWAY_SIM_DEVICES", "3"}, {"CUDA_VISIBLE_DEVICES", "1"}, {"SPILLWAY_SIM_CARD", "l4-24gb"}},
             [] {
               EXPECT_EQ(ask("nvmlInit_v2"), 0);
               unsigned count = 0;
               EXPECT_EQ(ask("nvmlDeviceGetCount_v2", &count), 0);
               EXPECT_EQ(count, 3u);
               void* device = nullptr;
               EXPECT_EQ(ask("nvmlDeviceGetHandleByIndex_v2", 3u, &device), kInvalidArgument);
               EXPECT_EQ(ask("nvmlDeviceGetHandleByUUID", "GPU-0", &device), kNotFound);
               EXPECT_EQ(ask("nvmlDeviceGetHandleByPciBusId_v2", "0000:99:00.0", &device), kNotFound);
               EXPECT_EQ(ask("nvmlDeviceGetHandleByPciBusId_v2", "x", &device), kInvalidArgument);
               EXPECT_EQ(ask("nvmlDeviceGetHandleByIndex_v2", 2u, &device), 0);
               EXPECT_EQ(ask("nvmlDeviceGetIndex", device, &count), 0);
               EXPECT_EQ(count, 2u);
               char text[96];
               EXPECT_EQ(ask("nvmlDeviceGetName", device, text, 9u), kInsufficientSize);
               EXPECT_EQ(ask("nvmlDeviceGetName", device, text, 10u), 0);
               EXPECT_STREQ(text, "NVIDIA L4");
               EXPECT_EQ(ask("nvmlDeviceGetName", static_cast<void*>(text), text, 96u), kInvalidArgument);
               unsigned long long memory[3] = {};
               EXPECT_EQ(ask("nvmlDeviceGetMemoryInfo", device, memory), 0);
               EXPECT_EQ(memory[0], uint64_t{23034} << 20) << "the framebuffer";
               EXPECT_EQ(memory[1], 23612293120u) << "what CUDA can have";
               unsigned long long second[5] = {};
               EXPECT_EQ(ask("nvmlDeviceGetMemoryInfo_v2", device, second), kVersionMismatch);
             });
}

struct ProcessInfo {
  unsigned pid;
  unsigned long long used_bytes;
  unsigned gpu_instance, compute_instance;
};

TEST(Nvml, a_monitor_sees_what_other_processes_of_the_machine_hold) {
  const std::string path = "/tmp/spillway-nvml-" + std::to_string(getpid());
  std::ofstream(path).flush();
  const Settings settings{{"SPILLWAY_SIM_MACHINE", path}, {"SPILLWAY_SIM_CARD", "l4-24gb"}};
  in_process(settings, [] {
    const driver::Table& table = started_driver();
    CUdeviceptr memory = 0;
    EXPECT_EQ(table.cuMemAlloc(&memory, 100 * kMiB), CUDA_SUCCESS);
    const pid_t user = getpid();
    const pid_t monitor = fork();
    if (monitor == 0) {  // replaced, because a fork's child has no driver
      setenv("SPILLWAY_TEST_USER", std::to_string(user).c_str(), 1);
      execl("/proc/self/exe", "test", "--gtest_filter=Nvml.DISABLED_of_a_monitor",
            "--gtest_also_run_disabled_tests", nullptr);
      _exit(127);
    }
    int status = 0;
    EXPECT_EQ(waitpid(monitor, &status, 0), monitor);
    EXPECT_EQ(status, 0);
  });
  std::filesystem::remove(path);
}

// What the test above starts as a process of its own; disabled, so that nothing else does.
TEST(Nvml, DISABLED_of_a_monitor) {
  const char* user = std::getenv("SPILLWAY_TEST_USER");
  ASSERT_NE(user, nullptr);
  EXPECT_EQ(ask("nvmlInit_v2"), 0);
  void* device = nullptr;
  EXPECT_EQ(ask("nvmlDeviceGetHandleByIndex_v2", 0u, &device), 0);
  unsigned count = 0;
  EXPECT_EQ(ask("nvmlDeviceGetComputeRunningProcesses_v3", device, &count, nullptr), kInsufficientSize);
  EXPECT_EQ(count, 1u);
  ProcessInfo found[2] = {};
  count = 2;
  EXPECT_EQ(ask("nvmlDeviceGetComputeRunningProcesses_v3", device, &count, found), 0);
  EXPECT_EQ(found[0].pid, static_cast<unsigned>(std::atoi(user)));
  EXPECT_GT(found[0].used_bytes, 100 * kMiB);
  unsigned long long memory[3] = {};
  EXPECT_EQ(ask("nvmlDeviceGetMemoryInfo", device, memory), 0);
  EXPECT_EQ(memory[1] + found[0].used_bytes, 23612293120u);
}

TEST(Nvml, what_is_missing_says_its_name_once) {
  in_process({}, [] {
    EXPECT_EQ(ask("nvmlInit_v2"), 0);
    testing::internal::CaptureStderr();
    unsigned watts = 0;
    EXPECT_EQ(ask("nvmlDeviceGetPowerUsage", nullptr, &watts), kNotSupported);
    EXPECT_EQ(ask("nvmlDeviceGetPowerUsage", nullptr, &watts), kNotSupported);
    EXPECT_EQ(testing::internal::GetCapturedStderr(),
              "spillway simulator: nvmlDeviceGetPowerUsage is not simulated: NVML_ERROR_NOT_SUPPORTED\n");
  });
}

TEST(Nvml, a_machine_that_is_described_wrongly_has_no_driver) {
  in_process({{"SPILLWAY_SIM_CARD", "no-card"}}, [] {
    testing::internal::CaptureStderr();
    EXPECT_EQ(ask("nvmlInit_v2"), kDriverNotLoaded);
    EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("'no-card' is no card of the table"));
  });
}

}  // namespace
}  // namespace spillway::test
