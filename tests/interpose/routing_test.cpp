// Whatever way a program finds the driver's functions, each of its calls passes the hook once and the driver
// once. The count of hooks is that of the run's summary, the driver's its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "interpose/hooks/functions.h"
#include "tools/spillway/run/summary.h"

namespace spillway::tools {
namespace {

struct Ran {
  int status = -1;
  std::string output;
  uint64_t hooked = 0;
  std::vector<std::string> unlisted;
};

std::string build_folder() {
  const char* folder = std::getenv("SPILLWAY_BUILD_DIR");
  return folder == nullptr ? "." : folder;
}

Ran run(const std::string& program, bool preloaded) {
  SharedSummary summary;
  std::string error;
  EXPECT_TRUE(summary.open(&error)) << error;
  const std::string preload =
      preloaded ? "LD_PRELOAD=" + build_folder() + "/lib/libspillway_preload.so " : "";
  const std::string command = "SPILLWAY_DRIVER= SPILLWAY_RUN_SUMMARY=" + summary.path() +
                              " LD_LIBRARY_PATH=" + build_folder() + "/lib/test/fake_driver " + preload +
                              program + " 2>&1";
  Ran ran;
  FILE* const pipe = ::popen(command.c_str(), "r");
  std::array<char, 512> part{};
  while (pipe != nullptr && std::fgets(part.data(), part.size(), pipe) != nullptr) ran.output += part.data();
  if (pipe != nullptr) ran.status = ::pclose(pipe);
  const RunTotals totals = summary.totals();
  ran.hooked = totals.driver_calls + totals.launches;
  ran.unlisted = totals.unlisted;
  return ran;
}

Ran reach_all(const std::string& way, bool preloaded) {
  return run(ROUTING_PROGRAM " " + way, preloaded);
}

class Routing : public testing::TestWithParam<const char*> {};

TEST_P(Routing, EveryCallPassesItsHookOnce) {
  const Ran ran = reach_all(GetParam(), true);
  EXPECT_EQ(ran.status, 0) << ran.output;
  // Finding a function by cuGetProcAddress is a call of its own.
  const bool by_call = std::string(GetParam()).starts_with("get_proc_address");
  EXPECT_EQ(ran.hooked, interpose::kFunctions * (by_call ? 2 : 1)) << ran.output;
}

TEST_P(Routing, WithoutTheLibraryNoneDoes) {
  const Ran ran = reach_all(GetParam(), false);
  EXPECT_EQ(ran.status, 0) << ran.output;
  EXPECT_EQ(ran.hooked, 0u);
}

INSTANTIATE_TEST_SUITE_P(Ways, Routing,
                         testing::Values("link", "dlsym", "dlsym_default", "dlvsym", "get_proc_address",
                                         "get_proc_address_v2"),
                         [](const auto& info) { return std::string(info.param); });

// The next after a program is the first library: the hook, as in the global scope.
TEST(RoutingOrder, TheNextDefinitionIsTheHook) {
  const Ran ran = reach_all("dlsym_next", true);
  EXPECT_EQ(ran.status, 0) << ran.output;
  EXPECT_EQ(ran.hooked, interpose::kFunctions) << ran.output;
}

constexpr const char* kFoundAll =
    "dlsym 16 16\ndlvsym 16 16\ncuGetProcAddress 16 16\nsame 1\nnever called 1\nnobody's 1\n";

TEST(FunctionsOfANewerDriver, GetTheirArgumentsAndAreNamedOnceTheyAreCalled) {
  const Ran ran = run(UNLISTED_PROGRAM, true);
  EXPECT_EQ(ran.status, 0);
  EXPECT_EQ(ran.output, kFoundAll);
  EXPECT_THAT(ran.unlisted, testing::ElementsAre("cuLaunchNewer, cuMemTakeNewer, cuMemFree of CUDA 99.2"));
}

TEST(FunctionsOfANewerDriver, AreTheSameWithoutTheLibrary) {
  const Ran ran = run(UNLISTED_PROGRAM, false);
  EXPECT_EQ(ran.output, kFoundAll);
  EXPECT_THAT(ran.unlisted, testing::IsEmpty());
}

}  // namespace
}  // namespace spillway::tools
