// The contract between the allocator and the handler of its shortages.
#include <chrono>
#include <functional>
#include <future>
#include <thread>

#include "allocator/pages/idle_pages.h"
#include "tests/allocator/simulated.h"

namespace spillway::testing {
namespace {

struct Scripted : OomHandler {
  std::function<LadderOutcome(PendingRequest&)> script = [](PendingRequest&) {
    return LadderOutcome::kGiveUp;
  };
  int calls = 0;
  LadderOutcome handle(PendingRequest& request) noexcept override {
    ++calls;
    return script(request);
  }
};

class Handler : public SimulatedDevice {
 protected:
  void SetUp() override {
    SimulatedDevice::SetUp();
    allocator->limit(kDevice, 32 * kMiB);
    allocator->set_handler(&handler);
  }
  Scripted handler;
};

TEST_F(Handler, IsToldTheRequestAndRunsWithoutTheLock) {
  const uint64_t block = get(30 * kMiB);
  handler.script = [&](PendingRequest& request) {
    EXPECT_EQ(request.event.requested_bytes, 20 * kMiB - 1);
    EXPECT_EQ(request.event.rounded_bytes, 20 * kMiB);
    EXPECT_EQ(request.event.short_bytes, 18 * kMiB);
    EXPECT_EQ(request.event.incident, 1u);
    EXPECT_EQ(request.reserved_bytes(), 0u);
    EXPECT_FALSE(request.retry());
    EXPECT_EQ(allocator->free(block), Status::kOk);
    memory();
    EXPECT_TRUE(request.retry());
    return LadderOutcome::kGranted;
  };
  EXPECT_NE(get(20 * kMiB - 1), 0u);
  EXPECT_EQ(handler.calls, 1);
  EXPECT_EQ(memory().rescued, 1u);
}

TEST_F(Handler, IsToldWhichAttemptItIs) {
  std::vector<uint32_t> attempts;
  handler.script = [&](PendingRequest& request) {
    attempts.push_back(request.event.attempt);
    return LadderOutcome::kGranted;
  };
  for (int i = 0; i < 2; ++i) EXPECT_EQ(get(40 * kMiB), 0u) << "it is not";
  EXPECT_EQ(attempts, (std::vector<uint32_t>{0, 1, 2, 0, 1, 2}));
}

// Others may have filled the card before this process uses it for the first time.
TEST_F(Handler, IsAskedWhereTheDeviceWasFullFromTheStart) {
  restart();
  allocator->set_handler(&handler);
  ASSERT_EQ(control->charge(0, "others", 256 * kMiB), CUDA_SUCCESS);
  handler.script = [&](PendingRequest&) { return LadderOutcome::kGiveUp; };
  EXPECT_EQ(get(kMiB), 0u);
  EXPECT_EQ(status, Status::kOutOfMemory) << failure->text;
  handler.script = [&](PendingRequest& request) {
    EXPECT_EQ(control->discharge(0, "others", 256 * kMiB), CUDA_SUCCESS);
    EXPECT_TRUE(request.retry());
    return LadderOutcome::kGranted;
  };
  EXPECT_NE(get(kMiB), 0u);
  EXPECT_EQ(handler.calls, 2);
}

// Then no other process of the card can help.
TEST_F(Handler, IsToldWhetherTheLimitLeavesLessThanIsMissing) {
  const uint64_t block = get(30 * kMiB);
  std::vector<bool> over_limit;
  handler.script = [&](PendingRequest& request) {
    over_limit.push_back(request.event.over_limit);
    return LadderOutcome::kGiveUp;
  };
  EXPECT_EQ(get(20 * kMiB), 0u);
  size_t free_bytes = 0, total = 0;
  ASSERT_EQ(table.cuMemGetInfo(&free_bytes, &total), CUDA_SUCCESS);
  const uint64_t others = free_bytes - 10 * kMiB;
  ASSERT_EQ(control->charge(0, "others", others), CUDA_SUCCESS);
  EXPECT_EQ(get(20 * kMiB), 0u) << "neither has room";
  allocator->limit(kDevice, 256 * kMiB);
  EXPECT_EQ(get(20 * kMiB), 0u) << "the card has none";
  EXPECT_EQ(over_limit, (std::vector<bool>{true, true, false}));
  EXPECT_EQ(control->discharge(0, "others", others), CUDA_SUCCESS);
  put(block);
}

TEST_F(Handler, ThatGrantsWithoutMemoryIsNotAskedForEver) {
  handler.script = [](PendingRequest&) { return LadderOutcome::kGranted; };
  EXPECT_EQ(get(40 * kMiB), 0u);
  EXPECT_EQ(status, Status::kOutOfMemory);
  EXPECT_LE(handler.calls, 3);
}

TEST_F(Handler, UnwindsAndGivesUp) {
  handler.script = [](PendingRequest&) { return LadderOutcome::kUnwind; };
  EXPECT_EQ(get(40 * kMiB), 0u);
  EXPECT_EQ(status, Status::kUnwind);
  handler.script = [](PendingRequest&) { return LadderOutcome::kGiveUp; };
  EXPECT_EQ(get(40 * kMiB), 0u);
  EXPECT_EQ(status, Status::kOutOfMemory);
  EXPECT_EQ(memory().unwound, 1u);
  EXPECT_EQ(memory().gave_up, 1u);
}

TEST_F(Handler, MayNotNeedMemoryItself) {
  handler.script = [&](PendingRequest&) {
    uint64_t address = 0;
    FailurePtr inner;
    EXPECT_EQ(allocator->allocate(kDevice, {50 * kMiB, {}, 0}, &address, &inner), Status::kOutOfMemory);
    EXPECT_NE(inner->text.find("inside a strategy"), std::string::npos);
    return LadderOutcome::kGiveUp;
  };
  EXPECT_EQ(get(40 * kMiB), 0u);
  EXPECT_EQ(handler.calls, 1);
}

TEST_F(Handler, WhatAStepFreedIsLeftToTheRequestThatWaits) {
  const uint64_t block = get(30 * kMiB);
  Status other = Status::kOk;
  uint64_t small = 0;
  std::future<void> thief;
  handler.script = [&](PendingRequest& request) {
    if (thief.valid()) return LadderOutcome::kGiveUp;  // the thief's own shortage, after this one
    EXPECT_EQ(allocator->free(block), Status::kOk);
    thief = std::async(std::launch::async, [&] {
      table.cuCtxSetCurrent(nullptr);
      other = allocator->allocate(kDevice, {1 * kMiB, {}, 0}, &small, nullptr);
    });
    EXPECT_EQ(thief.wait_for(std::chrono::seconds(10)), std::future_status::ready)
        << "it waits for this handler";
    EXPECT_TRUE(request.retry());
    return LadderOutcome::kGranted;
  };
  EXPECT_EQ(get(30 * kMiB), block);
  thief.wait();
  EXPECT_EQ(other, Status::kOk) << "it took a page that nobody waits for";
  EXPECT_NE(small, block);
}

TEST_F(Handler, ReclaimedPagesAreReservedUntilTheRequestIsServed) {
  std::vector<uint64_t> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(get(4 * kMiB));
  for (size_t i = 1; i < blocks.size(); i += 2) put(blocks[i]);
  handler.script = [&](PendingRequest& request) {
    EXPECT_FALSE(request.retry());
    EXPECT_EQ(request.estimate_reclaim(IdlePages::kKeep).pages, 4u);
    EXPECT_EQ(request.reclaim(IdlePages::kKeep), 8 * kMiB);
    EXPECT_EQ(request.reserved_bytes(), 8 * kMiB);
    check();
    EXPECT_TRUE(request.retry());
    EXPECT_EQ(request.reserved_bytes(), 0u);
    return LadderOutcome::kGranted;
  };
  EXPECT_NE(get(12 * kMiB), 0u);
  EXPECT_EQ(memory().reserved, 32 * kMiB);
}

// Nothing may be drained, unmapped or waited for then: by none of what a strategy is given.
TEST_F(Handler, MakesNoRoomForAStreamThatIsCaptured) {
  const StreamId captures = new_stream(), other = new_stream();
  put(get(24 * kMiB, other));
  auto* raw = reinterpret_cast<CUstream>(captures);
  const auto give_up = [&](PendingRequest& request, uint64_t bytes) {
    EXPECT_EQ(request.event.capture == CaptureState::kThisStream, bytes == 0);
    EXPECT_FALSE(request.retry());
    EXPECT_EQ(request.estimate_reclaim(IdlePages::kKeep).useful_bytes != 0, bytes != 0);
    EXPECT_EQ(request.reclaim(IdlePages::kKeep), bytes);
    EXPECT_EQ(request.reserved_bytes(), bytes);
    EXPECT_EQ(request.wait_for_events(), 0u);
    return LadderOutcome::kGiveUp;
  };
  ASSERT_EQ(table.cuStreamBeginCapture(raw, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_SUCCESS);
  handler.script = [&](PendingRequest& request) { return give_up(request, 0); };
  EXPECT_EQ(get(16 * kMiB, captures), 0u);
  CUgraph graph = nullptr;
  EXPECT_EQ(table.cuStreamEndCapture(raw, &graph), CUDA_SUCCESS) << "the capture was not broken";
  table.cuGraphDestroy(graph);
  handler.script = [&](PendingRequest& request) { return give_up(request, 8 * kMiB); };
  EXPECT_EQ(get(16 * kMiB, captures), 0u);
  EXPECT_EQ(handler.calls, 2);
}

TEST_F(Handler, WhatIsReservedComesBackWhenTheRequestFails) {
  for (const IdlePages what : {IdlePages::kKeep, IdlePages::kGiveBack}) {
    std::vector<uint64_t> blocks;
    for (int i = 0; i < 8; ++i) blocks.push_back(get(4 * kMiB));
    for (size_t i = 1; i < blocks.size(); i += 2) put(blocks[i]);
    handler.script = [&](PendingRequest& request) {
      EXPECT_EQ(request.reclaim(what), 8 * kMiB);
      return LadderOutcome::kGiveUp;
    };
    EXPECT_EQ(get(12 * kMiB), 0u);
    EXPECT_EQ(memory().cached + memory().free, 16 * kMiB);
    EXPECT_EQ(counts().live_pages_bytes, memory().reserved);
    const int calls = handler.calls;
    const uint64_t block = get(12 * kMiB);
    EXPECT_NE(block, 0u) << "what was reclaimed is there for the next request";
    EXPECT_EQ(handler.calls, calls);
    put(block);
    for (size_t i = 0; i < blocks.size(); i += 2) put(blocks[i]);
    allocator->empty_cache(kDevice);
  }
}

TEST_F(Handler, InjectedFailuresAreTriedAgainOnlyAfterAStep) {
  int granted = 0;
  handler.script = [&](PendingRequest& request) {
    EXPECT_FALSE(request.retry());
    granted += request.retry() ? 1 : 0;
    return granted != 0 ? LadderOutcome::kGranted : LadderOutcome::kGiveUp;
  };
  allocator->fail_request(2, false);
  EXPECT_NE(get(kMiB), 0u);
  EXPECT_EQ(handler.calls, 0);
  EXPECT_NE(get(kMiB), 0u);
  EXPECT_EQ(handler.calls, 1);
  EXPECT_EQ(granted, 1);
  EXPECT_NE(get(kMiB), 0u);
  EXPECT_EQ(handler.calls, 1);
  granted = 0;
  EXPECT_EQ(allocator->fail_request(1, true), 1u);
  EXPECT_EQ(get(kMiB), 0u);
  EXPECT_EQ(get(kMiB), 0u);
  EXPECT_EQ(granted, 0);
  EXPECT_EQ(allocator->fail_request(0, false), 2u);
  EXPECT_NE(get(kMiB), 0u);
  EXPECT_EQ(allocator->requests(), 6u);
}

}  // namespace
}  // namespace spillway::testing
