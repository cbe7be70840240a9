// Streams and events on the virtual clock.
#include <csignal>

#include "tests/simulator/driver/support.h"

namespace spillway::test {
namespace {

using driver::Table;

constexpr uint64_t kLong = 1'000'000;  // ns of work

class Streams {
 public:
  explicit Streams(const Table& driver) : table(driver) {}
  CUstream stream(unsigned flags = CU_STREAM_NON_BLOCKING) const {
    CUstream made = nullptr;
    EXPECT_EQ(table.cuStreamCreate(&made, flags), CUDA_SUCCESS);
    return made;
  }
  CUevent event(unsigned flags = CU_EVENT_DEFAULT) const {
    CUevent made = nullptr;
    EXPECT_EQ(table.cuEventCreate(&made, flags), CUDA_SUCCESS);
    return made;
  }
  void work(CUstream on, uint64_t ns = kLong) const {
    EXPECT_EQ(table.simulator->submit(on, "work", nullptr, 0, ns, nullptr, nullptr), CUDA_SUCCESS);
  }
  uint64_t now() const { return counts(table).virtual_ns; }
  float between(CUevent start, CUevent end) const {
    float milliseconds = -1;
    EXPECT_EQ(table.cuEventElapsedTime(&milliseconds, start, end), CUDA_SUCCESS);
    return milliseconds;
  }

  const Table& table;
};

void with_streams(const std::function<void(const Streams&)>& body) {
  in_process({}, [&] { body(Streams(started_driver())); });
}

TEST(Streams, work_is_asynchronous_until_waited_for) {
  with_streams([](const Streams& s) {
    const CUstream stream = s.stream();
    const uint64_t before = s.now();
    s.work(stream);
    EXPECT_LT(s.now(), before + kLong);
    EXPECT_EQ(s.table.cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    EXPECT_EQ(s.table.cuStreamSynchronize(stream), CUDA_SUCCESS);
    EXPECT_GE(s.now(), before + kLong);
    EXPECT_EQ(s.table.cuStreamQuery(stream), CUDA_SUCCESS);
  });
}

TEST(Streams, a_polling_loop_ends) {
  with_streams([](const Streams& s) {
    const CUstream stream = s.stream();
    s.work(stream);
    int polls = 0;
    while (s.table.cuStreamQuery(stream) == CUDA_ERROR_NOT_READY) ASSERT_LT(++polls, 100'000);
    EXPECT_GT(polls, 0);
  });
}

TEST(Streams, streams_run_side_by_side_and_one_stream_in_order) {
  with_streams([](const Streams& s) {
    const CUstream a = s.stream(), b = s.stream();
    const uint64_t before = s.now();
    for (int i = 0; i < 3; ++i) s.work(a);
    for (int i = 0; i < 3; ++i) s.work(b);
    EXPECT_EQ(s.table.cuCtxSynchronize(), CUDA_SUCCESS);
    EXPECT_GE(s.now(), before + 3 * kLong);
    EXPECT_LT(s.now(), before + 4 * kLong);
  });
}

TEST(Streams, events_measure_virtual_time_and_order_streams) {
  with_streams([](const Streams& s) {
    const CUstream a = s.stream(), b = s.stream();
    const CUevent start = s.event(), end = s.event(), after = s.event();
    EXPECT_EQ(s.table.cuEventQuery(start), CUDA_SUCCESS) << "nothing was recorded";
    EXPECT_EQ(s.table.cuEventRecord(start, a), CUDA_SUCCESS);
    s.work(a);
    EXPECT_EQ(s.table.cuEventRecord(end, a), CUDA_SUCCESS);
    EXPECT_EQ(s.table.cuEventQuery(end), CUDA_ERROR_NOT_READY);
    float milliseconds = 0;
    EXPECT_EQ(s.table.cuEventElapsedTime(&milliseconds, start, end), CUDA_ERROR_NOT_READY);
    EXPECT_EQ(s.table.cuStreamWaitEvent(b, end, 0), CUDA_SUCCESS);
    s.work(b, 500'000);
    EXPECT_EQ(s.table.cuEventRecord(after, b), CUDA_SUCCESS);
    EXPECT_EQ(s.table.cuEventSynchronize(after), CUDA_SUCCESS);
    EXPECT_NEAR(s.between(start, end), 1.0f, 0.01f);
    EXPECT_NEAR(s.between(end, after), 0.5f, 0.01f);
    EXPECT_EQ(s.table.cuEventElapsedTime(&milliseconds, start, s.event()), CUDA_ERROR_INVALID_HANDLE);
    const CUevent silent = s.event(CU_EVENT_DISABLE_TIMING);
    EXPECT_EQ(s.table.cuEventRecord(silent, a), CUDA_SUCCESS);
    EXPECT_EQ(s.table.cuEventElapsedTime(&milliseconds, start, silent), CUDA_ERROR_INVALID_HANDLE);
  });
}

TEST(Streams, an_event_is_recorded_on_streams_of_its_own_context_only) {
  in_process({{"SPILLWAY_SIM_DEVICES", "2"}}, [] {
    const Streams s(started_driver());
    const CUevent event = s.event();
    CUcontext second = nullptr;
    EXPECT_EQ(s.table.cuDevicePrimaryCtxRetain(&second, 1), CUDA_SUCCESS);
    EXPECT_EQ(s.table.cuCtxPushCurrent(second), CUDA_SUCCESS);
    const CUstream stream = s.stream();
    EXPECT_EQ(s.table.cuEventRecord(event, stream), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(s.table.cuEventRecord(event, nullptr), CUDA_ERROR_INVALID_HANDLE) << "of the current device";
    const CUevent own = s.event();
    EXPECT_EQ(s.table.cuCtxPopCurrent(&second), CUDA_SUCCESS);
    EXPECT_EQ(s.table.cuEventRecord(own, stream), CUDA_SUCCESS) << "whatever context is current";
    EXPECT_EQ(s.table.cuEventRecord(event, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(s.table.cuStreamWaitEvent(stream, event, 0), CUDA_SUCCESS) << "that may be another device's";
  });
}

TEST(Streams, the_default_stream_waits_for_blocking_streams_only) {
  with_streams([](const Streams& s) {
    const CUstream blocking = s.stream(CU_STREAM_DEFAULT), free = s.stream();
    s.work(free, 100 * kLong);
    s.work(blocking, 10 * kLong);
    s.work(nullptr, 1);
    const uint64_t before = s.now();
    EXPECT_EQ(s.table.cuStreamSynchronize(nullptr), CUDA_SUCCESS);
    EXPECT_GE(s.now(), before + 9 * kLong);
    EXPECT_LT(s.now(), before + 20 * kLong);
    s.work(nullptr, 10 * kLong);
    s.work(blocking, 1);
    EXPECT_EQ(s.table.cuStreamSynchronize(blocking), CUDA_SUCCESS);
    EXPECT_EQ(s.table.cuStreamQuery(nullptr), CUDA_SUCCESS)
        << "blocking work comes after the default stream's";
  });
}

TEST(Streams, the_default_stream_is_idle_when_blocking_streams_are) {
  with_streams([](const Streams& s) {
    const CUstream blocking = s.stream(CU_STREAM_DEFAULT);
    s.work(blocking, 10 * kLong);
    EXPECT_EQ(s.table.cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY);
    const uint64_t before = s.now();
    EXPECT_EQ(s.table.cuStreamSynchronize(nullptr), CUDA_SUCCESS);
    EXPECT_GE(s.now(), before + 9 * kLong);
    EXPECT_EQ(s.table.cuStreamQuery(blocking), CUDA_SUCCESS);
  });
}

TEST(Streams, the_per_thread_default_stream_is_another_one) {
  with_streams([](const Streams& s) {
    unsigned long long legacy = 0, own = 0, again = 0;
    EXPECT_EQ(s.table.cuStreamGetId(nullptr, &legacy), CUDA_SUCCESS);
    EXPECT_EQ(s.table.cuStreamGetId_ptsz(nullptr, &own), CUDA_SUCCESS);
    EXPECT_EQ(s.table.cuStreamGetId(CU_STREAM_PER_THREAD, &again), CUDA_SUCCESS);
    EXPECT_NE(legacy, own);
    EXPECT_EQ(own, again);
  });
}

TEST(Streams, priorities_are_clamped_to_the_range) {
  with_streams([](const Streams& s) {
    int least = 9, greatest = 9, priority = 9;
    CUstream stream = nullptr;
    EXPECT_EQ(s.table.cuCtxGetStreamPriorityRange(&least, &greatest), CUDA_SUCCESS);
    EXPECT_LT(greatest, least);
    EXPECT_EQ(s.table.cuStreamCreateWithPriority(&stream, 0, -100), CUDA_SUCCESS);
    EXPECT_EQ(s.table.cuStreamGetPriority(stream, &priority), CUDA_SUCCESS);
    EXPECT_EQ(priority, greatest);
  });
}

TEST(Streams, host_functions_and_callbacks_run_and_may_call_the_driver) {
  with_streams([](const Streams& s) {
    struct Seen {
      const Table& table;
      int calls = 0;
    } seen{s.table};
    const CUstream stream = s.stream();
    const auto count = [](void* data) {
      auto& to = *static_cast<Seen*>(data);
      int devices = 0;
      EXPECT_EQ(to.table.cuDeviceGetCount(&devices), CUDA_SUCCESS);
      ++to.calls;
    };
    EXPECT_EQ(s.table.cuLaunchHostFunc(stream, count, &seen), CUDA_SUCCESS);
    EXPECT_EQ(s.table.cuLaunchHostFunc_v2(stream, count, &seen, CU_HOST_TASK_SPINWAIT), CUDA_SUCCESS);
    EXPECT_EQ(s.table.cuLaunchHostFunc_v2(stream, count, &seen, 2), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(
        s.table.cuStreamAddCallback(
            stream, [](CUstream, CUresult, void* data) { ++static_cast<Seen*>(data)->calls; }, &seen, 0),
        CUDA_SUCCESS);
    EXPECT_EQ(s.table.simulator->submit(stream, "work", nullptr, 0, 1, count, &seen), CUDA_SUCCESS);
    EXPECT_EQ(seen.calls, 4);
  });
}

TEST(Streams, destroyed_handles_are_refused) {
  with_streams([](const Streams& s) {
    const CUstream stream = s.stream();
    const CUevent event = s.event();
    EXPECT_EQ(s.table.cuStreamDestroy(stream), CUDA_SUCCESS);
    EXPECT_EQ(s.table.cuEventDestroy(event), CUDA_SUCCESS);
    EXPECT_EQ(s.table.cuStreamSynchronize(stream), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(s.table.cuEventQuery(event), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(s.table.cuStreamDestroy(stream), CUDA_ERROR_INVALID_HANDLE);
  });
}

// The same calls give the same virtual times, whatever the host does.
TEST(Streams, two_runs_have_the_same_clock) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  for (int run = 0; run < 2; ++run)
    with_streams([&](const Streams& s) {
      const CUstream a = s.stream(), b = s.stream(CU_STREAM_DEFAULT);
      std::vector<char> host(3 * kMiB);
      CUdeviceptr memory = 0;
      EXPECT_EQ(s.table.cuMemAlloc(&memory, 8 * kMiB), CUDA_SUCCESS);
      for (int i = 0; i < 50; ++i) {
        s.work(i % 2 ? a : b, 1000 + i);
        EXPECT_EQ(s.table.cuMemcpyHtoDAsync(memory, host.data(), host.size() - i, b), CUDA_SUCCESS);
        if (run == 1) usleep(100);
        if (i % 7 == 0) {
          EXPECT_EQ(s.table.cuStreamSynchronize(a), CUDA_SUCCESS);
        }
      }
      const uint64_t now = s.now();
      EXPECT_EQ(write(ends[1], &now, sizeof now), static_cast<ssize_t>(sizeof now));
    });
  uint64_t first = 0, second = 1;
  EXPECT_EQ(read(ends[0], &first, sizeof first), static_cast<ssize_t>(sizeof first));
  EXPECT_EQ(read(ends[0], &second, sizeof second), static_cast<ssize_t>(sizeof second));
  EXPECT_EQ(first, second);
  EXPECT_GT(first, 0u);
}

// The profile `unforgiving`: a destroyed handle that is used again is the end of the process, with a report.
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
      "cuStreamIsCapturing, called at test_simulator_driver_streams.*, was given the stream 0x.*, which "
      "was destroyed at test_simulator_driver_streams");
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
