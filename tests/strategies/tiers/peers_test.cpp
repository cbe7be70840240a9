// In computing mode, with three devices: cold blocks' memory goes to another one, and leaves it when that
// one's own users need the room.
#include "tests/strategies/tiers/peers.h"
#include "tests/sanitized.h"

namespace spillway::testing {
namespace {

TEST_F(PeerSpill, ServesWithoutAContextThere) {
  const auto blocks = three_blocks();
  const uint64_t more = get(20 * kMiB);
  ASSERT_NE(more, 0u) << failure->text;
  EXPECT_GE(memory().spilled_peer, 18 * kMiB);
  EXPECT_EQ(memory().spilled, memory().spilled_peer);
  EXPECT_EQ(guest_bytes(*allocator, kPeer), memory().spilled_peer);
  EXPECT_EQ(charged(kPeer), memory().spilled_peer) << "the pages really lie there, and nothing else does";
  EXPECT_EQ(charged(kDevice), 32 * kMiB);
  EXPECT_FALSE(has_context(*allocator, kPeer));
  int owner = -1;
  EXPECT_EQ(table.cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, blocks.back() + kMiB),
            CUDA_SUCCESS);
  EXPECT_EQ(owner, 1) << "as the documentation says";
  expect_values(blocks);
}

TEST_F(PeerSpill, ComesBackWithWhatWasWrittenThere) {
  const auto blocks = three_blocks();
  const uint64_t more = get(20 * kMiB);
  ASSERT_NE(more, 0u) << failure->text;
  for (const uint64_t block : blocks) fill(block, kBlock, 0x77);
  put(more);
  let_time_pass(25'000);
  while (unspill(*allocator, kDevice) != 0) check();
  EXPECT_EQ(memory().spilled, 0u);
  EXPECT_EQ(charged(kPeer), 0u);
  for (const uint64_t block : blocks) EXPECT_TRUE(holds(block, kBlock, 0x77));
}

TEST_F(PeerSpill, IsShownWhenTheFirstGuestsAreOnADevice) {
  static int shown;
  shown = 0;
  with({.host_bytes = 0, .peer_bytes = 256 * kMiB}, [] { ++shown; });
  three_blocks();
  EXPECT_EQ(shown, 0);
  for (const int wanted : {1, 2, 2, 2}) {  // there are two devices
    const uint64_t there = memory().spilled_peer;
    ASSERT_NE(get(kBlock), 0u) << failure->text;
    let_time_pass();
    EXPECT_GT(memory().spilled_peer, there);
    EXPECT_EQ(shown, wanted);
  }
}

TEST_F(PeerSpill, OfAFreedBlockEndsWhenItsStreamIsPastIt) {
  const auto blocks = three_blocks();
  ASSERT_NE(get(20 * kMiB), 0u);
  for (const uint64_t block : blocks) launch(StreamId{}, block, kBlock, 50'000);
  for (const uint64_t block : blocks) put(block);
  EXPECT_GT(charged(kPeer), 0u) << "the kernels may still read it";
  table.cuCtxSynchronize();
  let_time_pass();
  EXPECT_EQ(charged(kPeer), 0u);
  EXPECT_EQ(guest_bytes(*allocator, kPeer), 0u);
}

TEST_F(PeerSpill, OfAFreedBlockCountsAsLongAsItLiesThere) {
  ASSERT_EQ(control->set_capacity(2, 0), CUDA_SUCCESS);
  const auto blocks = three_blocks();
  ASSERT_NE(get(4 * kMiB), 0u) << failure->text;
  ASSERT_NE(get(5 * kMiB), 0u) << failure->text;
  ASSERT_EQ(guest_bytes(*allocator, kPeer), charged(kPeer));
  control->fail_call(2, "cuMemUnmap", 0, CUDA_ERROR_UNKNOWN);
  for (const uint64_t block : blocks) put(block);
  table.cuCtxSynchronize();
  for (int i = 0; i < 100; ++i) {
    put(get(512));
    ASSERT_EQ(guest_bytes(*allocator, kPeer), charged(kPeer)) << i;
    ASSERT_EQ(memory().spilled_peer, charged(kPeer)) << i;
  }
  EXPECT_EQ(charged(kPeer), 0u);
}

TEST_F(PeerSpill, AFullPeerLeavesTheRestToTheHost) {
  ASSERT_EQ(control->set_capacity(1, 12 * kMiB), CUDA_SUCCESS);
  ASSERT_EQ(control->set_capacity(2, 0), CUDA_SUCCESS);
  const auto blocks = three_blocks();
  ASSERT_NE(get(20 * kMiB), 0u) << failure->text;
  EXPECT_EQ(memory().spilled_peer, kBlock);
  EXPECT_GE(on_host(), 8 * kMiB);
  expect_values(blocks);
}

TEST_F(PeerSpill, OnlyItsOwnRefusalEndsWhatAPeerIsOffered) {
  with({.host_bytes = 256 * kMiB, .peer_bytes = 256 * kMiB, .now = [] { return Backoff::Time{}; }});
  ASSERT_EQ(control->set_capacity(2, 0), CUDA_SUCCESS);
  const auto blocks = three_blocks();
  const uint64_t before = counts().injected_failures;
  control->fail_call(1, "cuMemMap", 0, CUDA_ERROR_OUT_OF_MEMORY);
  uint64_t more = get(20 * kMiB);
  control->fail_call(0, nullptr, 0, CUDA_SUCCESS);
  ASSERT_EQ(counts().injected_failures, before + 1);
  if (more != 0) put(more);
  let_time_pass(25'000);
  while (unspill(*allocator, kDevice) != 0) check();
  ASSERT_EQ(memory().spilled, 0u);
  more = get(20 * kMiB);
  ASSERT_NE(more, 0u) << failure->text;
  EXPECT_GE(memory().spilled_peer, 18 * kMiB) << "it has refused nothing";
  expect_values(blocks);
}

TEST_F(PeerSpill, APeerThatWasFullIsTriedAgainAfterAWhile) {
  static Backoff::Time now{};
  with({.host_bytes = 10 * kMiB, .peer_bytes = 256 * kMiB, .now = [] { return now; }});
  ASSERT_EQ(control->set_capacity(1, 12 * kMiB), CUDA_SUCCESS);
  ASSERT_EQ(control->set_capacity(2, 0), CUDA_SUCCESS);
  const auto blocks = three_blocks();
  ASSERT_NE(get(20 * kMiB), 0u) << failure->text;
  ASSERT_EQ(memory().spilled_peer, kBlock);
  ASSERT_EQ(control->set_capacity(1, 256 * kMiB), CUDA_SUCCESS);
  let_time_pass();
  now += std::chrono::milliseconds(999);
  EXPECT_EQ(get(4 * kMiB), 0u) << "not yet";
  now += std::chrono::milliseconds(1);
  ASSERT_NE(get(4 * kMiB), 0u) << failure->text;
  EXPECT_GT(memory().spilled_peer, kBlock);
  expect_values(blocks);
}

TEST_F(PeerSpill, WhatThePeersBudgetsDoNotTakeGoesToTheHost) {
  with({.host_bytes = 256 * kMiB, .peer_bytes = 6 * kMiB});
  const auto blocks = three_blocks();
  ASSERT_NE(get(20 * kMiB), 0u) << failure->text;
  EXPECT_EQ(guest_bytes(*allocator, kPeer), 6 * kMiB);
  EXPECT_EQ(guest_bytes(*allocator, DeviceId{2}), 6 * kMiB);
  EXPECT_GE(on_host(), 6 * kMiB);
  expect_values(blocks);
  with({.host_bytes = 0, .peer_bytes = 6 * kMiB});
  ASSERT_EQ(get(4 * kMiB), 0u);
  EXPECT_NE(story().find("not spill_to_peer: no peer has room within its budget"), std::string::npos)
      << story();
}

TEST_F(PeerSpill, ALimitHoldsForWhatLiesThereToo) {
  allocator->limit(kPeer, 8 * kMiB);
  allocator->limit(DeviceId{2}, 2 * kMiB);
  const auto blocks = three_blocks();
  ASSERT_NE(get(20 * kMiB), 0u) << failure->text;
  EXPECT_LE(guest_bytes(*allocator, kPeer), 8 * kMiB);
  EXPECT_LE(guest_bytes(*allocator, DeviceId{2}), 2 * kMiB);
  EXPECT_GE(guest_bytes(*allocator, kPeer), 6 * kMiB);
  const uint64_t own = get_on(kPeer, 6 * kMiB);
  ASSERT_NE(own, 0u) << failure->text;
  EXPECT_LE(guest_bytes(*allocator, kPeer) + 6 * kMiB, 8 * kMiB);
  expect_values(blocks);
  put(own);
}

TEST_F(PeerSpill, WithoutABudgetOnlyWhatNobodyUses) {
  static DeviceUuid used{};
  CUuuid uuid;
  ASSERT_EQ(table.cuDeviceGetUuid(&uuid, 1), CUDA_SUCCESS);
  std::copy_n(reinterpret_cast<const uint8_t*>(uuid.bytes), used.size(), used.begin());
  with({.host_bytes = 0});
  const auto blocks = three_blocks();
  ASSERT_EQ(get(20 * kMiB), 0u) << "nobody can tell";
  EXPECT_NE(story().find("without a budget only unused ones are taken"), std::string::npos) << story();
  with({.host_bytes = 0, .nobody_uses = [](const DeviceUuid& device) { return device != used; }});
  const uint64_t own = get_on(DeviceId{2}, kMiB);
  EXPECT_EQ(get(20 * kMiB), 0u) << "one is another process's, one is ours";
  put(own);
  static Backoff::Time now{};
  ASSERT_EQ(control->set_capacity(2, 0), CUDA_SUCCESS);
  with({.host_bytes = 0,
        .nobody_uses = [](const DeviceUuid& device) { return device == used; },
        .now = [] { return now; }});
  CUcontext context = nullptr;
  ASSERT_EQ(table.cuDevicePrimaryCtxRetain(&context, 1), CUDA_SUCCESS);
  EXPECT_EQ(get(20 * kMiB), 0u) << "another library of the program's uses it";
  const int closed = gate.closed;
  now += std::chrono::minutes(5);
  EXPECT_EQ(get(20 * kMiB), 0u);
  EXPECT_EQ(gate.closed, closed) << "what is known takes no standstill";
  table.cuDevicePrimaryCtxRelease(1);
  with({.host_bytes = 0, .nobody_uses = [](const DeviceUuid&) { return true; }});
  ASSERT_NE(get(20 * kMiB), 0u) << failure->text;
  EXPECT_LE(guest_bytes(*allocator, kPeer), 256 * kMiB / 4 * 3);
  expect_values(blocks);
}

TEST_F(PeerSpill, WithoutAccessTheHostServes) {
  control->fail_call(1, "cuDeviceCanAccessPeer", 1, CUDA_ERROR_INVALID_DEVICE);
  const auto blocks = three_blocks();
  ASSERT_NE(get(20 * kMiB), 0u) << failure->text;
  EXPECT_EQ(memory().spilled_peer, 0u);
  EXPECT_GE(on_host(), 18 * kMiB);
  with({.host_bytes = 0, .peer_bytes = 256 * kMiB});
  ASSERT_EQ(get(4 * kMiB), 0u);
  EXPECT_NE(story().find("not spill_to_peer: no peer access"), std::string::npos) << story();
}

TEST_F(PeerSpill, ADeviceThatWasGivenAccessMustReachTheMemoryToo) {
  std::string text;
  const auto blocks = three_blocks();
  ASSERT_EQ(allocator->grant(kDevice, DeviceId{2}, &text), Status::kOk) << text;
  ASSERT_NE(get(20 * kMiB), 0u) << failure->text;
  ASSERT_GT(guest_bytes(*allocator, kPeer), 0u);
  for (const int device : {0, 2}) {
    CUmemLocation location{CU_MEM_LOCATION_TYPE_DEVICE, {device}};
    unsigned long long flags = 0;
    ASSERT_EQ(table.cuMemGetAccess(&flags, &location, blocks.back() + 8 * kMiB), CUDA_SUCCESS);
    EXPECT_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE) << device;
  }
}

TEST_F(PeerSpill, ADeviceWhoseAtomicsDoNotReachTheGuestsIsGivenNoAccess) {
  std::string text;
  const auto blocks = three_blocks();
  const uint64_t more = get(20 * kMiB);
  ASSERT_NE(more, 0u) << failure->text;
  ASSERT_GT(guest_bytes(*allocator, kPeer), 0u);
  control->fail_call(1, "cuDeviceGetP2PAttribute", 0, CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(allocator->grant(kDevice, DeviceId{2}, &text), Status::kDriverFailed);
  EXPECT_NE(text.find("atomic operations lose updates"), std::string::npos) << text;
  EXPECT_EQ(allocator->grant(kDevice, DeviceId{2}, &text), Status::kOk) << text;
}

TEST_F(PeerSpill, GuestsLeaveWhenTheirHostNeedsTheRoom) {
  ASSERT_EQ(control->set_capacity(1, 32 * kMiB), CUDA_SUCCESS);
  const auto blocks = three_blocks();
  ASSERT_NE(get(20 * kMiB), 0u) << failure->text;
  ASSERT_GE(guest_bytes(*allocator, kPeer), 18 * kMiB);
  const uint64_t own = get_on(kPeer, 28 * kMiB);
  ASSERT_NE(own, 0u) << failure->text;
  EXPECT_LE(charged(kPeer), 32 * kMiB);
  EXPECT_EQ(guest_bytes(*allocator, kPeer), 0u);
  EXPECT_GE(on_host(), 18 * kMiB);
  expect_values(blocks);
  put(own);
}

TEST_F(PeerSpill, GuestsGoHomeWhereTheHostsMemoryIsUsedUp) {
  ASSERT_EQ(control->set_capacity(1, 32 * kMiB), CUDA_SUCCESS);
  with({.host_bytes = 0, .peer_bytes = 256 * kMiB});
  const auto blocks = three_blocks();
  const uint64_t more = get(20 * kMiB);
  ASSERT_NE(more, 0u) << failure->text;
  EXPECT_EQ(get_on(kPeer, 28 * kMiB), 0u) << "there is no room for them anywhere";
  EXPECT_EQ(get_on(kPeer, 40 * kMiB), 0u);
  put(more);
  const uint64_t own = get_on(kPeer, 28 * kMiB);
  ASSERT_NE(own, 0u) << failure->text;
  EXPECT_EQ(memory().spilled, 0u);
  expect_values(blocks);
  put(own);
}

// At each of the driver's calls, once, on the way there and on: nothing is lost, and nothing leaks.
TEST_F(PeerSpill, SurvivesAFailureOfAnyCall) {
  for (const char* call :
       {"cuMemCreate", "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess", "cuMemcpyAsync",
        "cuEventSynchronize", "cuMemUnmap", "cuMemAddressFree", "cuEventRecord"}) {
    for (uint64_t n = 1; n < 100; n += kNextFailing) {
      ASSERT_EQ(control->set_capacity(1, 32 * kMiB), CUDA_SUCCESS);
      std::vector<uint64_t> blocks = three_blocks();
      const uint64_t before = counts().injected_failures;
      control->fail_call(n, call, 0, CUDA_ERROR_OUT_OF_MEMORY);
      blocks.push_back(get(20 * kMiB));
      blocks.push_back(get_on(kPeer, 28 * kMiB));
      control->fail_call(0, nullptr, 0, CUDA_SUCCESS);
      const bool fired = counts().injected_failures != before;
      ASSERT_TRUE(fired || n > 1) << call << " is never called";
      expect_values({blocks.begin(), blocks.begin() + 3});
      for (const uint64_t block : blocks)
        if (block != 0) put(block);
      table.cuCtxSynchronize();
      let_time_pass();
      for (const DeviceId device : {kDevice, kPeer}) allocator->empty_cache(device);
      release_host_memory(*allocator, DeviceId{-1});  // or the next round would make none
      check();
      EXPECT_EQ(guest_bytes(*allocator, kPeer), 0u) << call << " " << n;
      if (!fired) break;
    }
  }
}

TEST_F(PeerSpill, TheWayBackMapsEachPageOnce) {
  const auto blocks = three_blocks();
  const uint64_t more = get(20 * kMiB);
  ASSERT_NE(more, 0u) << failure->text;
  ASSERT_EQ(on_host(), 0u);
  put(more);
  allocator->limit(kDevice, 128 * kMiB);
  let_time_pass(25'000);
  const uint64_t before = control->calls("cuMemMap");
  const uint64_t bytes = unspill(*allocator, kDevice);
  EXPECT_GE(bytes, 18 * kMiB);
  EXPECT_LE(control->calls("cuMemMap") - before, bytes / kPage + blocks.size());
  EXPECT_EQ(memory().spilled, 0u);
  expect_values(blocks);
}

TEST_F(PeerSpill, HostMemoryThatOneDeviceKeepsIsAnothersWhenTheBudgetLeavesNothingElse) {
  with({.host_bytes = 24 * kMiB, .peer_bytes = 0});
  auto blocks = three_blocks();
  blocks.push_back(get(20 * kMiB));
  ASSERT_NE(blocks.back(), 0u) << failure->text;
  for (const uint64_t block : blocks) put(block);
  let_time_pass();
  ASSERT_GE(kept_host_bytes(*allocator, kDevice), 18 * kMiB);
  allocator->limit(kPeer, 32 * kMiB);
  for (int i = 0; i < 3; ++i) ASSERT_NE(get_on(kPeer, kBlock), 0u);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(allocator->free(get_on(kPeer, 512)), Status::kOk);
  EXPECT_NE(get_on(kPeer, 20 * kMiB), 0u) << story();
  EXPECT_GE(on_host(), 18 * kMiB);
  EXPECT_LE(on_host() + kept_host_bytes(*allocator, kDevice) + kept_host_bytes(*allocator, kPeer), 24 * kMiB);
}

}  // namespace
}  // namespace spillway::testing
