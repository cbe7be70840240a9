// Work whose end others decide: what waits for it, what does not, and what a look at it says.
#include <atomic>
#include <chrono>
#include <thread>

#include "tests/simulator/driver/support.h"

namespace spillway::test {
namespace {

using driver::Table;

constexpr uint64_t kLong = 1'000'000;  // ns of work

// The others: they say when the work has ended.
struct Others {
  std::atomic<int> state{SPILLWAY_EXTERNAL_PENDING};
  std::atomic<int> begun{0}, waits{0}, released{0};

  static SpillwayExternalState wait(void* argument, int64_t timeout_ms) {
    auto& self = *static_cast<Others*>(argument);
    if (timeout_ms != 0) ++self.waits;
    while (timeout_ms != 0 && self.state == SPILLWAY_EXTERNAL_PENDING)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return static_cast<SpillwayExternalState>(self.state.load());
  }

  SpillwayExternalWork work() {
    return {.size = sizeof(SpillwayExternalWork),
            .range_count = 0,
            .name = "collective",
            .ranges = nullptr,
            .duration_ns = kLong,
            .begin = [](void* argument) { ++static_cast<Others*>(argument)->begun; },
            .wait = wait,
            .release = [](void* argument) { ++static_cast<Others*>(argument)->released; },
            .argument = this};
  }

  // They come a little later, from another thread.
  std::jthread come(int as = SPILLWAY_EXTERNAL_ENDED) {
    return std::jthread([this, as] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      state = as;
    });
  }
};

struct Machine {
  const Table& table;
  CUstream stream() const {
    CUstream made = nullptr;
    EXPECT_EQ(table.cuStreamCreate(&made, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    return made;
  }
  CUevent recorded(CUstream on) const {
    CUevent made = nullptr;
    EXPECT_EQ(table.cuEventCreate(&made, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
    EXPECT_EQ(table.cuEventRecord(made, on), CUDA_SUCCESS);
    return made;
  }
  CUdeviceptr memory(size_t bytes = 4096) const {
    CUdeviceptr address = 0;
    EXPECT_EQ(table.cuMemAlloc(&address, bytes), CUDA_SUCCESS);
    return address;
  }
  void submit(CUstream on, Others& others) const {
    const SpillwayExternalWork work = others.work();
    EXPECT_EQ(table.simulator->submit_external(on, &work), CUDA_SUCCESS);
    EXPECT_EQ(others.begun, 1);
  }
  uint64_t now() const { return counts(table).virtual_ns; }
};

void with_machine(const Settings& settings, const std::function<void(const Machine&)>& body) {
  in_process(settings, [&] { body(Machine{started_driver()}); });
}

TEST(External, what_waits_for_the_host_side_waits_for_the_others) {
  using Wait = std::function<CUresult(const Machine&, CUstream)>;
  const std::vector<Wait> waits = {
      [](const Machine& m, CUstream stream) { return m.table.cuStreamSynchronize(stream); },
      [](const Machine& m, CUstream stream) { return m.table.cuEventSynchronize(m.recorded(stream)); },
      [](const Machine& m, CUstream) { return m.table.cuCtxSynchronize(); },
      [](const Machine& m, CUstream) { return m.table.cuMemFree(m.memory()); },
      [](const Machine& m, CUstream stream) {
        int host = 0;
        return m.table.cuMemcpyDtoHAsync(&host, m.memory(), sizeof host, stream);
      },
      [](const Machine& m, CUstream stream) {
        return m.table.cuLaunchHostFunc(stream, [](void*) {}, nullptr);
      },
  };
  for (const Wait& wait : waits) {
    with_machine({}, [&](const Machine& m) {
      Others others;
      const CUstream stream = m.stream();
      m.submit(stream, others);
      EXPECT_EQ(others.waits, 0) << "submitting holds nobody up";
      const auto later = others.come();
      EXPECT_EQ(wait(m, stream), CUDA_SUCCESS);
      EXPECT_EQ(others.state, SPILLWAY_EXTERNAL_ENDED);
      EXPECT_GE(others.waits, 1);
    });
  }
}

TEST(External, a_stream_that_waited_for_an_event_depends_on_it_and_others_do_not) {
  with_machine({}, [](const Machine& m) {
    Others others;
    const CUstream collective = m.stream(), behind = m.stream(), aside = m.stream();
    m.submit(collective, others);
    EXPECT_EQ(m.table.cuStreamWaitEvent(behind, m.recorded(collective), 0), CUDA_SUCCESS);
    EXPECT_EQ(m.table.cuStreamSynchronize(aside), CUDA_SUCCESS);
    EXPECT_EQ(others.waits, 0);
    const auto later = others.come();
    EXPECT_EQ(m.table.cuStreamSynchronize(behind), CUDA_SUCCESS);
    EXPECT_EQ(others.waits, 1);
  });
}

TEST(External, the_default_stream_waits_for_blocking_streams) {
  with_machine({}, [](const Machine& m) {
    Others others;
    CUstream blocking = nullptr;
    EXPECT_EQ(m.table.cuStreamCreate(&blocking, CU_STREAM_DEFAULT), CUDA_SUCCESS);
    m.submit(blocking, others);
    const auto later = others.come();
    EXPECT_EQ(m.table.cuStreamSynchronize(nullptr), CUDA_SUCCESS);
    EXPECT_EQ(others.waits, 1);
  });
}

TEST(External, other_processes_move_no_clock) {
  with_machine({}, [](const Machine& m) {
    Others early, late;
    const CUstream stream = m.stream();
    early.state = SPILLWAY_EXTERNAL_ENDED;
    const uint64_t start = m.now();
    m.submit(stream, early);
    EXPECT_EQ(m.table.cuStreamSynchronize(stream), CUDA_SUCCESS);
    const uint64_t first = m.now() - start;
    m.submit(stream, late);
    const auto later = late.come();
    EXPECT_EQ(m.table.cuStreamSynchronize(stream), CUDA_SUCCESS);
    EXPECT_EQ(m.now() - start, 2 * first);
  });
}

TEST(External, a_query_goes_by_the_virtual_clock_and_then_waits_for_the_others) {
  with_machine({}, [](const Machine& m) {
    Others others;
    const CUstream stream = m.stream();
    others.state = SPILLWAY_EXTERNAL_ENDED;
    m.submit(stream, others);
    EXPECT_EQ(m.table.cuStreamQuery(stream), CUDA_ERROR_NOT_READY) << "ended, but not on the clock";
    Others late;
    m.submit(stream, late);
    EXPECT_EQ(m.table.cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    EXPECT_EQ(late.waits, 0);
    const CUstream aside = m.stream();
    EXPECT_EQ(m.table.simulator->submit(aside, "longer", nullptr, 0, 10 * kLong, nullptr, nullptr),
              CUDA_SUCCESS);
    EXPECT_EQ(m.table.cuStreamSynchronize(aside), CUDA_SUCCESS);
    const auto later = late.come();
    EXPECT_EQ(m.table.cuStreamQuery(stream), CUDA_SUCCESS);
    EXPECT_EQ(late.waits, 1);
  });
}

TEST(External, a_thread_that_only_looks_on_moves_no_clock_and_sees_what_happened) {
  with_machine({}, [](const Machine& m) {
    Others others;
    const CUstream stream = m.stream();
    m.submit(stream, others);
    const CUevent event = m.recorded(stream);
    const uint64_t before = m.now();
    CUresult while_pending = CUDA_SUCCESS, afterwards = CUDA_ERROR_NOT_READY;
    std::jthread([&] {
      while_pending = m.table.cuEventQuery(event);
      others.state = SPILLWAY_EXTERNAL_ENDED;
      for (int i = 0; i < 1000; ++i) afterwards = m.table.cuEventQuery(event);
    }).join();
    EXPECT_EQ(while_pending, CUDA_ERROR_NOT_READY);
    EXPECT_EQ(afterwards, CUDA_SUCCESS);
    EXPECT_EQ(m.now(), before);
    EXPECT_EQ(m.table.cuEventQuery(event), CUDA_ERROR_NOT_READY) << "for this thread the clock decides";
  });
}

// Else what a backward pass allocates first would depend on how far the other processes are.
TEST(External, for_pytorchs_backward_thread_the_clock_decides_before_it_has_put_any_work) {
  with_machine({}, [](const Machine& m) {
    Others others;
    const CUstream stream = m.stream();
    m.submit(stream, others);
    const CUevent event = m.recorded(stream);
    others.state = SPILLWAY_EXTERNAL_ENDED;
    CUresult seen = CUDA_SUCCESS;
    std::jthread([&] {
      pthread_setname_np(pthread_self(), "pt_autograd_0");
      seen = m.table.cuEventQuery(event);
    }).join();
    EXPECT_EQ(seen, CUDA_ERROR_NOT_READY) << "it has ended, but not by the clock";
  });
}

TEST(External, what_a_watching_thread_saw_end_may_be_unmapped) {
  with_machine({}, [](const Machine& m) {
    for (const bool watched : {true, false}) {
      const CUstream stream = m.stream();
      CUdeviceptr address = 0;
      CUmemGenericAllocationHandle page = 0;
      const CUmemAllocationProp prop = device_page();
      const CUmemAccessDesc access = read_write();
      EXPECT_EQ(m.table.cuMemAddressReserve(&address, kPage, 0, 0, 0), CUDA_SUCCESS);
      EXPECT_EQ(m.table.cuMemCreate(&page, kPage, &prop, 0), CUDA_SUCCESS);
      EXPECT_EQ(m.table.cuMemMap(address, kPage, 0, page, 0), CUDA_SUCCESS);
      EXPECT_EQ(m.table.cuMemSetAccess(address, kPage, &access, 1), CUDA_SUCCESS);
      Others others;
      others.state = SPILLWAY_EXTERNAL_ENDED;
      const SpillwayRange range{address, 4096, 1};
      SpillwayExternalWork work = others.work();
      work.ranges = &range;
      work.range_count = 1;
      EXPECT_EQ(m.table.simulator->submit_external(stream, &work), CUDA_SUCCESS);
      const CUevent event = m.recorded(stream);
      if (watched) std::jthread([&] { EXPECT_EQ(m.table.cuEventQuery(event), CUDA_SUCCESS); }).join();
      EXPECT_EQ(m.table.cuMemUnmap(address, kPage), CUDA_SUCCESS);
      EXPECT_EQ(counts(m.table).violations, watched ? 0u : 1u) << text(m.table.simulator->violations);
    }
  });
}

// PyTorch's watchdog, which polls an event. It asks for the device too, and `frees` what the collective used,
// which records another.
struct Watchdog {
  const Table& table;
  CUevent event;
  CUstream stream = nullptr;
  CUevent frees = nullptr;
  std::atomic<bool> saw{false};
  std::atomic<int> looks{0};

  void run(const std::stop_token& stop) {
    pthread_setname_np(pthread_self(), "pt_nccl_watchdg");
    while (!stop.stop_requested()) {
      CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
      EXPECT_EQ(table.cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
      int devices = 0;
      EXPECT_EQ(table.cuDeviceGetCount(&devices), CUDA_SUCCESS);
      if (frees) {
        EXPECT_EQ(table.cuEventRecord(frees, stream), CUDA_SUCCESS);
      }
      if (!saw && table.cuEventQuery(event) == CUDA_SUCCESS) saw = true;
      EXPECT_EQ(table.cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
      ++looks;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
};

// As Spillway's member of the machine's ledger does, several times a second.
void ask_what_is_free(const Table& table, const std::stop_token& stop) {
  CUdevice device = 0;
  CUcontext context = nullptr;
  EXPECT_EQ(table.cuDeviceGet(&device, 0), CUDA_SUCCESS);
  EXPECT_EQ(table.cuDevicePrimaryCtxRetain(&context, device), CUDA_SUCCESS);
  while (!stop.stop_requested()) {
    unsigned flags = 0;
    int active = 0;
    size_t free = 0, total = 0;
    EXPECT_EQ(table.cuDevicePrimaryCtxGetState(device, &flags, &active), CUDA_SUCCESS);
    EXPECT_EQ(table.cuCtxPushCurrent(context), CUDA_SUCCESS);
    EXPECT_EQ(table.cuMemGetInfo(&free, &total), CUDA_SUCCESS);
    EXPECT_EQ(table.cuCtxPopCurrent(&context), CUDA_SUCCESS);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(table.cuDevicePrimaryCtxRelease(device), CUDA_SUCCESS);
}

TEST(External, a_watchdog_sees_what_the_host_has_waited_for_before_the_next_collective) {
  with_machine({}, [](const Machine& m) {
    Others first, second;
    first.state = second.state = SPILLWAY_EXTERNAL_ENDED;
    const CUstream stream = m.stream();
    m.submit(stream, first);
    Watchdog watchdog{m.table, m.recorded(stream)};
    const std::jthread polls([&](const std::stop_token& stop) { watchdog.run(stop); });
    while (watchdog.looks < 3) std::this_thread::yield();
    EXPECT_FALSE(watchdog.saw) << "it has ended, but the host does not know";
    EXPECT_EQ(m.table.cuEventSynchronize(watchdog.event), CUDA_SUCCESS);
    const int looks = watchdog.looks;
    while (watchdog.looks < looks + 3) std::this_thread::yield();
    EXPECT_FALSE(watchdog.saw) << "waiting for an event throttles only";
    EXPECT_EQ(m.table.cuStreamSynchronize(stream), CUDA_SUCCESS);
    m.submit(stream, second);
    EXPECT_TRUE(watchdog.saw);
  });
}

// A program that never waits for a whole stream, but for events only.
TEST(External, a_watchdog_sees_every_100_ms_what_is_over_whether_it_is_awaited_or_free) {
  for (const char* setting : {"awaited", "free"})
    with_machine({{"SPILLWAY_SIM_WATCHDOG", setting}}, [](const Machine& m) {
      Others first, second;
      first.state = second.state = SPILLWAY_EXTERNAL_ENDED;
      const CUstream stream = m.stream(), aside = m.stream();
      m.submit(stream, first);
      Watchdog watchdog{m.table, m.recorded(stream)};
      const std::jthread polls([&](const std::stop_token& stop) { watchdog.run(stop); });
      EXPECT_EQ(m.table.simulator->submit(aside, "100 ms", nullptr, 0, 100 * kLong, nullptr, nullptr),
                CUDA_SUCCESS);
      EXPECT_EQ(m.table.cuEventSynchronize(m.recorded(aside)), CUDA_SUCCESS);
      m.submit(stream, second);
      const int looks = watchdog.looks;
      while (watchdog.looks < looks + 3) std::this_thread::yield();
      EXPECT_TRUE(watchdog.saw);
    });
}

// Whether a collective waits for the watchdog: it was asked for and is not placed. A collective that does not
// wait is asked for and placed under one lock, and nobody sees it in between.
struct HeldUp {
  const Table& table;
  uint64_t asked = calls(), placed = counts(table).launches;

  uint64_t calls() const { return table.simulator->calls("cuLaunchKernel"); }
  bool now() const {
    const bool asked_for = calls() > asked;  // before the other look: it may be placed between the two
    return asked_for && counts(table).launches == placed;
  }
};

TEST(External, a_watchdog_that_is_free_holds_no_collective_up) {
  with_machine({{"SPILLWAY_SIM_WATCHDOG", "free"}}, [](const Machine& m) {
    Others first, second;
    first.state = second.state = SPILLWAY_EXTERNAL_ENDED;
    const CUstream stream = m.stream();
    m.submit(stream, first);
    Watchdog watchdog{m.table, m.recorded(stream)};
    EXPECT_EQ(m.table.cuStreamSynchronize(stream), CUDA_SUCCESS);
    // It looks when the collective waits for it, or when nobody needs it any more.
    const HeldUp held_up{m.table};
    std::atomic<bool> is_there{false}, may_look{false}, was_held_up{false};
    const std::jthread polls([&](const std::stop_token& stop) {
      pthread_setname_np(pthread_self(), "pt_nccl_watchdg");
      is_there = true;
      while (!may_look && !was_held_up) {
        std::this_thread::yield();
        was_held_up = held_up.now();
      }
      watchdog.run(stop);
    });
    while (!is_there) std::this_thread::yield();
    m.submit(stream, second);
    EXPECT_FALSE(was_held_up) << "the collective waited for the watchdog";
    may_look = true;
    while (!watchdog.saw) std::this_thread::yield();
  });
}

// At the end of a program nothing else happens any more: without this it would look for ever. Spillway's own
// thread goes on asking how much is free, in a program that runs under `spillway run`.
TEST(External, a_watchdog_that_frees_moves_no_clock_and_sees_the_truth_when_others_only_ask) {
  with_machine({}, [](const Machine& m) {
    Others others;
    others.state = SPILLWAY_EXTERNAL_ENDED;
    const CUstream stream = m.stream();
    m.submit(stream, others);
    Watchdog watchdog{m.table, m.recorded(stream), stream, m.recorded(stream)};
    const uint64_t before = m.now();
    {
      const std::jthread polls([&](const std::stop_token& stop) { watchdog.run(stop); });
      const std::jthread asks([&](const std::stop_token& stop) { ask_what_is_free(m.table, stop); });
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (!watchdog.saw && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    }
    EXPECT_TRUE(watchdog.saw);
    EXPECT_EQ(m.now(), before);
  });
}

TEST(External, work_that_fails_fails_what_waits_for_it) {
  with_machine({}, [](const Machine& m) {
    Others others;
    const CUstream stream = m.stream(), aside = m.stream();
    m.submit(stream, others);
    const auto later = others.come(SPILLWAY_EXTERNAL_FAILED);
    EXPECT_EQ(m.table.cuStreamSynchronize(stream), CUDA_ERROR_LAUNCH_FAILED);
    EXPECT_EQ(m.table.cuCtxSynchronize(), CUDA_ERROR_LAUNCH_FAILED);
    EXPECT_EQ(m.table.cuStreamSynchronize(aside), CUDA_SUCCESS);
    EXPECT_EQ(m.table.cuMemFree(m.memory()), CUDA_SUCCESS) << "memory can always be given back";
  });
}

TEST(External, it_is_released_once_when_nothing_depends_on_it) {
  with_machine({}, [](const Machine& m) {
    Others first, second;
    const CUstream stream = m.stream();
    m.submit(stream, first);
    first.state = SPILLWAY_EXTERNAL_ENDED;
    EXPECT_EQ(m.table.cuStreamSynchronize(stream), CUDA_SUCCESS);
    second.state = SPILLWAY_EXTERNAL_ENDED;
    m.submit(stream, second);
    EXPECT_EQ(first.released, 1);
    EXPECT_EQ(second.released, 0);
  });
}

TEST(External, a_thread_that_tells_what_its_kernels_write_keeps_what_is_known) {
  with_machine({}, [](const Machine& m) {
    const SpillwaySimulatorControl& control = *m.table.simulator;
    const CUstream stream = m.stream();
    const CUdeviceptr memory = m.memory();
    const int sent = 7;
    int got = 0;
    const auto launch = [&] {
      EXPECT_EQ(control.submit(stream, "kernel", nullptr, 0, 1, nullptr, nullptr), CUDA_SUCCESS);
    };
    EXPECT_EQ(m.table.cuMemcpyHtoD(memory, &sent, 4), CUDA_SUCCESS);
    const uint64_t before = control.submitted();
    EXPECT_EQ(control.confine(1), 1);
    launch();
    EXPECT_EQ(control.submitted(), before + 1);
    EXPECT_EQ(control.ask(memory, &got, 4), 1);
    std::jthread([&] { EXPECT_EQ(control.confine(0), 0) << "each thread for itself"; }).join();
    EXPECT_EQ(control.confine(-1), 0);
    launch();
    EXPECT_EQ(control.ask(memory, &got, 4), 0);
  });
}

TEST(External, a_read_that_is_answered_gives_the_answer_once) {
  with_machine({}, [](const Machine& m) {
    const CUdeviceptr memory = m.memory();
    const auto read = [&] {
      uint64_t got = 9;
      EXPECT_EQ(m.table.cuMemcpyDtoH(&got, memory, 8), CUDA_SUCCESS);
      return got;
    };
    m.table.simulator->answer_next_read(1, 42);
    EXPECT_EQ(read(), 42u);
    EXPECT_EQ(read(), 0u);
    m.table.simulator->answer_next_read(1, 42);
    m.table.simulator->answer_next_read(0, 0);
    EXPECT_EQ(read(), 0u);
  });
}

TEST(External, a_size_that_nobody_knows_is_the_most_that_it_can_be) {
  for (const char* masks : {"all", "none"})
    with_machine({{"SPILLWAY_SIM_MASKS", masks}}, [&](const Machine& m) {
      uint64_t got = 9;
      m.table.simulator->answer_next_read(SPILLWAY_SIMULATOR_AT_MOST, 42);
      EXPECT_EQ(m.table.cuMemcpyDtoH(&got, m.memory(), 8), CUDA_SUCCESS);
      EXPECT_EQ(got, std::string_view(masks) == "all" ? 42u : 0u);
    });
}

// Its bytes are there when the others have come, which a copy by the same stream would wait for.
TEST(External, who_asks_for_what_a_collective_brings_waits_for_it) {
  with_machine({}, [](const Machine& m) {
    Others others;
    const CUdeviceptr memory = m.memory(), elsewhere = m.memory();
    const SpillwayRange range{.address = memory, .bytes = 4, .writes = 1};
    SpillwayExternalWork work = others.work();
    work.range_count = 1;
    work.ranges = &range;
    EXPECT_EQ(m.table.simulator->submit_external(m.stream(), &work), CUDA_SUCCESS);
    int got = 0;
    EXPECT_EQ(m.table.simulator->await_and_ask(elsewhere, &got, 4), 0);
    EXPECT_EQ(others.waits, 0) << "it writes nothing there";
    const auto later = others.come();
    EXPECT_EQ(m.table.simulator->await_and_ask(memory, &got, 4), 0) << "these others tell nothing";
    EXPECT_EQ(others.waits, 1);
    EXPECT_EQ(others.state, SPILLWAY_EXTERNAL_ENDED);
  });
}

TEST(External, in_computing_mode_bytes_are_touched_in_the_order_of_the_stream) {
  using Touch = std::function<CUresult(const Machine&, CUstream)>;
  const std::vector<Touch> touches = {
      [](const Machine& m, CUstream stream) {
        return m.table.simulator->submit(stream, "kernel", nullptr, 0, 1, [](void*) {}, nullptr);
      },
      [](const Machine& m, CUstream stream) {
        return m.table.simulator->submit(stream, "CPU kernel", nullptr, 0, 1, nullptr, nullptr);
      },
      [](const Machine& m, CUstream stream) {
        return m.table.cuMemcpyDtoDAsync(m.memory(), m.memory(), 4096, stream);
      },
      [](const Machine& m, CUstream stream) { return m.table.cuMemsetD8Async(m.memory(), 1, 16, stream); },
  };
  for (const char* values : {"zeros", "compute"}) {
    for (const Touch& touch : touches) {
      with_machine({{"SPILLWAY_SIM_VALUES", values}}, [&](const Machine& m) {
        Others others;
        const CUstream stream = m.stream();
        m.submit(stream, others);
        const auto later = others.come();
        EXPECT_EQ(touch(m, stream), CUDA_SUCCESS);
        EXPECT_EQ(others.waits, std::string(values) == "compute" ? 1 : 0);
      });
    }
  }
}

TEST(External, null_mode_knows_small_copies_until_a_kernel_runs) {
  with_machine({}, [](const Machine& m) {
    const CUstream stream = m.stream();
    const CUdeviceptr first = m.memory(), second = m.memory();
    const std::vector<int> sent = {1, 2, 3, 4};
    std::vector<int> got(4, 9);
    const auto read = [&](CUdeviceptr from) {
      EXPECT_EQ(m.table.cuMemcpyDtoH(got.data(), from, 16), CUDA_SUCCESS);
      return got;
    };
    EXPECT_EQ(m.table.cuMemcpyHtoD(first, sent.data(), 16), CUDA_SUCCESS);
    EXPECT_EQ(m.table.cuMemcpyDtoD(second, first, 16), CUDA_SUCCESS);
    EXPECT_EQ(read(second), sent);
    const auto asked = [&](CUdeviceptr from) {
      got.assign(4, 9);
      return m.table.simulator->ask(from, got.data(), 16) ? got : std::vector<int>();
    };
    EXPECT_EQ(asked(second), sent);
    EXPECT_EQ(m.table.cuMemsetD8(first + 8, 0, 4), CUDA_SUCCESS);
    EXPECT_EQ(asked(first), (std::vector<int>{1, 2, 0, 4}));
    m.table.simulator->tell(first + 8, nullptr, 4);
    EXPECT_EQ(asked(first), std::vector<int>()) << "not all of it is known";
    EXPECT_EQ(read(first), std::vector<int>(4));
    const int five = 5;
    m.table.simulator->tell(first + 8, &five, 4);
    EXPECT_EQ(asked(first), (std::vector<int>{1, 2, 5, 4}));
    EXPECT_EQ(read(first), (std::vector<int>{1, 2, 5, 4}));
    m.table.simulator->tell(first, sent.data(), 16);
    EXPECT_EQ(m.table.cuMemcpyDtoD(second, first, 16), CUDA_SUCCESS);
    EXPECT_EQ(read(first), sent);
    EXPECT_EQ(read(second), sent);
    EXPECT_EQ(m.table.simulator->submit(stream, "kernel", nullptr, 0, 1, nullptr, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(read(first), std::vector<int>(4)) << "it may have written anything";
    EXPECT_EQ(read(second), std::vector<int>(4));
    m.table.simulator->tell(first, sent.data(), 16);
    EXPECT_EQ(m.table.cuMemFree(first), CUDA_SUCCESS);
    EXPECT_EQ(read(m.memory()), std::vector<int>(4));
  });
}

TEST(External, null_mode_waits_for_a_few_bytes_that_come_from_outside) {
  with_machine({}, [](const Machine& m) {
    Others others;
    const CUstream stream = m.stream();
    const CUdeviceptr told = m.memory(), large = m.memory(4 * kMiB), copy = m.memory(4 * kMiB);
    const SpillwayRange ranges[] = {{told, 16, 1}, {large, 4 * kMiB, 1}};
    SpillwayExternalWork work = others.work();
    work.ranges = ranges;
    work.range_count = 2;
    EXPECT_EQ(m.table.simulator->submit_external(stream, &work), CUDA_SUCCESS);
    EXPECT_EQ(m.table.cuMemcpyDtoDAsync(copy, large, 4 * kMiB, stream), CUDA_SUCCESS);
    EXPECT_EQ(others.waits, 0);
    const auto later = others.come();
    EXPECT_EQ(m.table.cuMemcpyDtoDAsync(copy, told + 8, 8, stream), CUDA_SUCCESS);
    EXPECT_EQ(others.waits, 1);
  });
}

TEST(External, what_is_refused_is_never_called) {
  with_machine({}, [](const Machine& m) {
    Others others;
    const SpillwayRange nowhere{m.memory() + (uint64_t{1} << 30), 64, 1};
    SpillwayExternalWork work = others.work();
    work.ranges = &nowhere;
    work.range_count = 1;
    EXPECT_EQ(m.table.simulator->submit_external(m.stream(), &work), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_EQ(counts(m.table).violations, 1u);
    work.size = 1;
    EXPECT_EQ(m.table.simulator->submit_external(m.stream(), &work), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(m.table.cuCtxSynchronize(), CUDA_SUCCESS);
    EXPECT_EQ(others.begun + others.waits + others.released, 0);
  });
}

}  // namespace
}  // namespace spillway::test
