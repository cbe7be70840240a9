// Eight threads on one device, with streams, shortages and injected failures; and a child of fork.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "strategies/ladder/ladder.h"
#include "tests/allocator/fuzz/fuzz_machine.h"

namespace spillway::testing {
namespace {

class Threads : public SimulatedDevice {
 protected:
  void SetUp() override {
    SimulatedDevice::SetUp();
    ladder = std::make_unique<Ladder>(*allocator);
    ladder->add(make_wait_for_events());
    ladder->add(make_stitch());
    ladder->add(make_release_cache(*allocator));
    allocator->set_handler(ladder.get());
    allocator->limit(kDevice, 128 * kMiB);
  }

  void run_threads(bool inject, int count, int operations) {
    std::vector<StreamId> shared;
    for (int i = 0; i < 3; ++i) shared.push_back(new_stream());
    std::atomic<int> running{count};
    std::vector<std::thread> threads;
    for (int i = 0; i < count; ++i) {
      threads.emplace_back([&, i] {
        CUcontext context = nullptr;
        table.cuDevicePrimaryCtxRetain(&context, 0);
        table.cuCtxSetCurrent(context);
        Generator generator(1000 + static_cast<uint64_t>(i));
        Machine machine(table, *allocator, {shared[static_cast<size_t>(i) % 3], shared[0], shared[1]},
                        inject);
        for (int k = 0; k < operations; ++k) {
          Instruction next = generator.next();
          // The streams are other threads' too, and a child has only the thread that forked.
          if (next.what == Do::kCapture || next.what == Do::kFork) continue;
          if (next.what == Do::kLimit) next.size = std::max<uint64_t>(next.size, 96 * kMiB);
          machine.run(next);
        }
        machine.free_all();
        table.cuCtxSetCurrent(nullptr);
        table.cuDevicePrimaryCtxRelease(0);
        running.fetch_sub(1);
      });
    }
    while (running.load() != 0) {
      std::string broken;
      EXPECT_TRUE(allocator->check_invariants(&broken)) << broken;
      memory();
      // A check walks every block under the lock: in a loop without a pause it starves the threads.
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    for (std::thread& thread : threads) thread.join();
    control->fail_call(0, nullptr, 0, CUDA_SUCCESS);
    check();
    EXPECT_EQ(memory().live, 0u);
    EXPECT_GT(memory().failures, 0u) << "memory was never short";
  }

  std::unique_ptr<Ladder> ladder;
};

TEST_F(Threads, ShareADevice) {
  run_threads(false, 8, 10000);
}

TEST_F(Threads, ShareADeviceThatFails) {
  run_threads(true, 8, 10000);
}

TEST_F(Threads, FreeWhatOthersAllocated) {
  constexpr int kBlocks = 2000;
  std::vector<std::atomic<uint64_t>> blocks(kBlocks);
  std::thread giver([&] {
    table.cuCtxSetCurrent(nullptr);
    for (auto& block : blocks) {
      uint64_t address = 0;
      EXPECT_EQ(allocator->allocate(kDevice, {300 * kKiB, {}, 0}, &address, nullptr), Status::kOk);
      block.store(address);
      while (address != 0 && memory().live > 64 * kMiB) std::this_thread::yield();
    }
  });
  for (auto& block : blocks) {
    while (block.load() == 0) std::this_thread::yield();
    EXPECT_EQ(allocator->free(block.load()), Status::kOk);
  }
  giver.join();
  EXPECT_EQ(memory().live, 0u);
}

TEST_F(Threads, AChildOfForkTouchesNoCuda) {
  const uint64_t block = get(3 * kMiB);
  const uint64_t calls = counts().driver_calls;
  const pid_t child = fork();
  if (child == 0) {
    uint64_t address = 0;
    FailurePtr why;
    bool right = allocator->allocate(kDevice, {100, {}, 0}, &address, &why) == Status::kUnavailable;
    right = right && why != nullptr && why->text.find("fork") != std::string::npos;
    right = right && allocator->free(block) == Status::kOk && allocator->empty_cache(kDevice) == 0;
    Memory memory;
    allocator->memory(kDevice, &memory);
    std::string broken;
    right = right && allocator->check_invariants(&broken);
    _exit(right ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(counts().driver_calls, calls);
  put(block);
  EXPECT_NE(get(5 * kMiB), 0u);
}

}  // namespace
}  // namespace spillway::testing
