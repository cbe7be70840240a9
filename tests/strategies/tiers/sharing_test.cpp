// What lies on another device or on the host comes back to be shared with other processes, or stays as it is.
#include "tests/sanitized.h"
#include "tests/strategies/tiers/peers.h"

namespace spillway::testing {
namespace {

TEST_F(PeerSpill, WhatIsToBeSharedComesBackFirst) {
  const auto blocks = three_blocks();
  const uint64_t more = get(20 * kMiB);
  ASSERT_NE(more, 0u) << failure->text;
  fill(more, 20 * kMiB, 0xEE);
  std::string why_not;
  for (size_t i = 0; i < blocks.size(); ++i) {
    SharedBlock shared;
    ASSERT_EQ(allocator->share(blocks[i], &shared, &why_not), Status::kOk) << why_not;
    check();
    uint64_t mapped = 0;
    ASSERT_EQ(allocator->map_shared(kDevice, shared.pages, &mapped, &why_not), Status::kOk) << why_not;
    EXPECT_TRUE(holds(mapped + shared.offset, kBlock, static_cast<unsigned char>(i + 1))) << i;
    EXPECT_EQ(allocator->unmap_shared(mapped), Status::kOk);
  }
  EXPECT_LE(charged(kDevice), 32 * kMiB);
  EXPECT_GE(memory().spilled, 18 * kMiB) << "the other block made room";
  EXPECT_TRUE(holds(more, 20 * kMiB, 0xEE));
  expect_values(blocks);
}

TEST_F(PeerSpill, WhatCameBackFromTheHostLeavesItsMemoryForTheNext) {
  with({.host_bytes = 256 * kMiB, .peer_bytes = 0});
  const auto blocks = three_blocks();
  const uint64_t more = get(20 * kMiB);
  ASSERT_NE(more, 0u) << failure->text;
  ASSERT_GE(on_host(), 18 * kMiB);
  put(more);
  for (const uint64_t block : blocks) {
    SharedBlock shared;
    std::string why_not;
    ASSERT_EQ(allocator->share(block, &shared, &why_not), Status::kOk) << why_not;
  }
  EXPECT_EQ(on_host(), 0u);
  EXPECT_GE(kept_host_bytes(*allocator, kDevice), 18 * kMiB);
  expect_values(blocks);
}

TEST_F(PeerSpill, WhatCanNotComeBackIsNotSharedAndNotLost) {
  const auto blocks = three_blocks();
  const uint64_t more = get(20 * kMiB);
  ASSERT_NE(more, 0u) << failure->text;
  const uint64_t spilled = memory().spilled;
  SharedBlock shared;
  std::string why_not;
  gate.can_close = false;
  EXPECT_EQ(allocator->share(blocks[2], &shared, &why_not), Status::kOutOfMemory);
  EXPECT_NE(why_not.find("to be shared: out of memory"), std::string::npos) << why_not;
  put(more);
  EXPECT_EQ(allocator->share(blocks[2], &shared, &why_not), Status::kInvalid);
  EXPECT_NE(why_not.find("launches cannot be held"), std::string::npos) << why_not;
  EXPECT_EQ(memory().spilled, spilled);
  check();
  gate.can_close = true;
  allocator->set_handler(nullptr);
  EXPECT_NE(allocator->share(blocks[2], &shared, &why_not), Status::kOk);
  allocator->set_handler(ladder.get());
  EXPECT_EQ(allocator->share(blocks[2], &shared, &why_not), Status::kOk) << why_not;
  check();
  expect_values(blocks);
}

TEST_F(PeerSpill, WhatIsPinnedElsewhereIsNotShared) {
  static uint64_t pinned = 0;
  const auto blocks = three_blocks();
  ASSERT_NE(get(20 * kMiB), 0u) << failure->text;
  pinned = blocks[2];
  set_pins(*allocator, [] {
    Pins pins;
    pins.add(pinned, 1);
    return pins;
  });
  SharedBlock shared;
  std::string why_not;
  EXPECT_EQ(allocator->share(blocks[2], &shared, &why_not), Status::kInvalid);
  EXPECT_NE(why_not.find("pinned"), std::string::npos) << why_not;
  expect_values(blocks);
}

// At each of the driver's calls, once: a block is shared with what it holds, or refused with what it holds.
TEST_F(PeerSpill, SharingSurvivesAFailureOfAnyCall) {
  for (const char* call : {"cuMemCreate", "cuMemMap", "cuMemcpyAsync", "cuMemUnmap"}) {
    for (uint64_t n = 1; n < 100; n += kNextFailing) {
      const auto blocks = three_blocks();
      const uint64_t more = get(20 * kMiB), before = counts().injected_failures;
      ASSERT_NE(more, 0u) << failure->text;
      std::string why_not;
      control->fail_call(n, call, 0, CUDA_ERROR_UNKNOWN);
      for (const uint64_t block : blocks) {
        SharedBlock shared;
        allocator->share(block, &shared, &why_not);
      }
      control->fail_call(0, nullptr, 0, CUDA_SUCCESS);
      check();
      const bool fired = counts().injected_failures != before;
      ASSERT_TRUE(fired || n > 1) << call << " is never called";
      expect_values(blocks);
      for (const uint64_t block : blocks) {
        SharedBlock shared;
        EXPECT_EQ(allocator->share(block, &shared, &why_not), Status::kOk) << call << n << why_not;
        put(block);
      }
      put(more);
      table.cuCtxSynchronize();
      let_time_pass();
      allocator->empty_cache(kDevice);
      if (!fired) break;
    }
  }
}

}  // namespace
}  // namespace spillway::testing
