// The profile `unforgiving`: a destroyed handle that is used again is the end of the process, with a report.
#include <csignal>

#include "tests/simulator/driver/support.h"

namespace spillway::test {
namespace {

using driver::Table;

void use_destroyed_stream(const Table& table) {
  CUstream stream = nullptr;
  table.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
  table.cuStreamDestroy(stream);
  CUstreamCaptureStatus status{};
  table.cuStreamIsCapturing(stream, &status);
}

void use_destroyed_event(const Table& table) {
  CUevent event = nullptr;
  table.cuEventCreate(&event, CU_EVENT_DEFAULT);
  table.cuEventDestroy(event);
  table.cuEventQuery(event);
}

void use_destroyed_context(const Table& table) {
  CUcontext context = nullptr, popped = nullptr;
  table.cuCtxCreate_v2(&context, 0, 0);
  table.cuCtxPopCurrent(&popped);
  table.cuCtxDestroy(context);
  table.cuCtxPushCurrent(context);
}

void on_machine(const char* profile, void (*use)(const Table&)) {
  setenv("SPILLWAY_SIM_PROFILE", profile, 1);
  use(started_driver());
  std::_Exit(0);
}

TEST(DestroyedDeathTest, its_use_ends_the_process_and_names_the_call) {
  EXPECT_EXIT(
      on_machine("unforgiving", use_destroyed_stream), testing::KilledBySignal(SIGSEGV),
      "cuStreamIsCapturing, called at test_simulator_driver_destroyed.*, was given the stream 0x.*, which "
      "was destroyed at test_simulator_driver_destroyed");
  EXPECT_EXIT(on_machine("unforgiving", use_destroyed_event), testing::KilledBySignal(SIGSEGV),
              "cuEventQuery, .* was given the event 0x");
  EXPECT_EXIT(on_machine("unforgiving", use_destroyed_context), testing::KilledBySignal(SIGSEGV),
              "cuCtxPushCurrent_v2, .* was given the context 0x");
}

TEST(DestroyedDeathTest, is_an_error_like_others_by_default) {
  EXPECT_EXIT(on_machine("", use_destroyed_stream), testing::ExitedWithCode(0), "^$");
}

TEST(Destroyed, no_later_stream_has_the_same_handle) {
  in_process({{"SPILLWAY_SIM_PROFILE", "unforgiving"}}, [] {
    const Table& table = started_driver();
    CUstream first = nullptr, second = nullptr;
    table.cuStreamCreate(&first, CU_STREAM_NON_BLOCKING);
    table.cuStreamDestroy(first);
    table.cuStreamCreate(&second, CU_STREAM_NON_BLOCKING);
    EXPECT_NE(first, second);
    EXPECT_EQ(table.cuStreamQuery(second), CUDA_SUCCESS);
  });
}

}  // namespace
}  // namespace spillway::test
