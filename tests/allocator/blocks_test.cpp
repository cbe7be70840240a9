// Blocks: splitting, merging, rounding, look-up, streams, pending frees.
#include <algorithm>

#include "tests/allocator/simulated.h"

namespace spillway::testing {
namespace {

class Blocks : public SimulatedDevice {
 protected:
  BlockInfo find(uint64_t address) {
    BlockInfo block;
    EXPECT_EQ(allocator->find_block(address, &block), Status::kOk);
    return block;
  }
};

TEST_F(Blocks, AreRoundedToUnitsAndTakePagesOnlyAsNeeded) {
  const uint64_t block = get(3 * kMiB + 1);
  ASSERT_NE(block, 0u);
  EXPECT_EQ(block % 512, 0u);
  const Memory now = memory();
  EXPECT_EQ(now.live, 3 * kMiB + 1);
  EXPECT_EQ(now.rounding, 511u);
  EXPECT_EQ(now.stranded, kMiB - 512);
  EXPECT_EQ(now.reserved, 2 * kPage);
  EXPECT_EQ(counts().live_pages_bytes, 2 * kPage);
  put(block);
  EXPECT_EQ(memory().cached, 2 * kPage);
}

TEST_F(Blocks, ZeroBytesGiveANullAddress) {
  EXPECT_EQ(get(0), 0u);
  EXPECT_EQ(status, Status::kOk);
}

TEST_F(Blocks, OfMoreThanEverythingAreRefusedAndChangeNothing) {
  for (const uint64_t bytes : {uint64_t{1} << 62, UINT64_MAX, uint64_t{300} << 20}) {
    EXPECT_EQ(get(bytes), 0u);
    EXPECT_EQ(status, Status::kOutOfMemory);
    ASSERT_NE(failure, nullptr);
    EXPECT_EQ(failure->event.requested_bytes, bytes);
    EXPECT_NE(failure->event.short_bytes, 0u);
  }
  EXPECT_EQ(memory().reserved, 0u);
}

TEST_F(Blocks, AreSplitAndMergedWithoutDriverCalls) {
  const uint64_t whole = get(32 * kMiB);
  put(whole);
  const uint64_t calls = memory().driver_calls;
  std::vector<uint64_t> pieces;
  for (int i = 0; i < 32; ++i) pieces.push_back(get(kMiB));
  EXPECT_EQ(*std::min_element(pieces.begin(), pieces.end()), whole);
  EXPECT_EQ(*std::max_element(pieces.begin(), pieces.end()), whole + 31 * kMiB);
  for (size_t i = 0; i < pieces.size(); i += 2) put(pieces[i]);
  for (size_t i = 1; i < pieces.size(); i += 2) put(pieces[i]);
  EXPECT_EQ(get(32 * kMiB), whole);
  EXPECT_EQ(memory().driver_calls, calls);
}

TEST_F(Blocks, GoToTheSmallestHoleThatFits) {
  const uint64_t a = get(8 * kMiB), wall = get(kMiB), b = get(6 * kMiB), end = get(kMiB);
  ASSERT_TRUE(a && wall && b && end);
  put(a);
  put(b);
  EXPECT_EQ(get(5 * kMiB), b);
  EXPECT_EQ(get(7 * kMiB), a);
}

TEST_F(Blocks, GrowInPlaceAtTheEndOfTheirArena) {
  const uint64_t first = get(3 * kMiB);
  put(first);
  EXPECT_EQ(get(20 * kMiB), first) << "the free pages at the end are part of the larger block";
  EXPECT_EQ(memory().reserved, 20 * kMiB);
}

TEST_F(Blocks, OfSmallSizesShareAPage) {
  std::vector<uint64_t> blocks;
  for (int i = 0; i < 4096; ++i) blocks.push_back(get(1 + i % 512));
  EXPECT_EQ(memory().reserved, kPage);
  std::sort(blocks.begin(), blocks.end());
  EXPECT_EQ(std::adjacent_find(blocks.begin(), blocks.end()), blocks.end());
  for (const uint64_t block : blocks) put(block);
  EXPECT_EQ(memory().cached, kPage);
}

TEST_F(Blocks, AreFoundByAnyOfTheirBytes) {
  const uint64_t small = get(1000), large = get(5 * kMiB + 3), other = get(9 * kMiB);
  EXPECT_EQ(find(small).requested_bytes, 1000u);
  EXPECT_EQ(find(small + 999).address, small);
  EXPECT_EQ(find(large + 5 * kMiB).address, large);
  EXPECT_EQ(find(other + 9 * kMiB - 1).bytes, 9 * kMiB);
  BlockInfo none;
  EXPECT_EQ(allocator->find_block(small + kMiB, &none), Status::kNotFound);
  EXPECT_EQ(allocator->find_block(17, &none), Status::kNotFound);
  put(large);
  EXPECT_EQ(allocator->find_block(large, &none), Status::kNotFound);
  EXPECT_EQ(find(other).address, other);
}

TEST_F(Blocks, AreListedAndTileWhatIsMapped) {
  const uint64_t a = get(700 * kKiB), b = get(3 * kMiB), c = get(100);
  put(b);
  std::vector<BlockInfo> blocks;
  ASSERT_EQ(allocator->blocks(kDevice, &blocks), Status::kOk);
  uint64_t bytes = 0;
  for (const BlockInfo& block : blocks) bytes += block.bytes;
  EXPECT_EQ(bytes, memory().reserved);
  const auto live = std::count_if(blocks.begin(), blocks.end(),
                                  [](const BlockInfo& x) { return x.use == BlockUse::kLive; });
  EXPECT_EQ(live, 2);
  put(a);
  put(c);
}

TEST_F(Blocks, ThatAreNotLiveCanNotBeFreed) {
  const uint64_t block = get(4 * kMiB);
  EXPECT_EQ(allocator->free(block + 512), Status::kNotFound);
  EXPECT_EQ(allocator->free(block + kMiB), Status::kNotFound);
  EXPECT_EQ(allocator->free(12345), Status::kNotFound);
  EXPECT_EQ(allocator->free(UINT64_MAX), Status::kNotFound);
  put(block);
  EXPECT_EQ(allocator->free(block), Status::kNotFound);
  EXPECT_EQ(allocator->record_stream(block, StreamId{1}), Status::kNotFound);
  check();
}

TEST_F(Blocks, OfOneStreamAreNeverGivenToAnother) {
  const StreamId one = new_stream(), two = new_stream();
  const uint64_t a = get(8 * kMiB, one);
  launch(one, a, 8 * kMiB);
  put(a);
  const uint64_t b = get(8 * kMiB, two);
  EXPECT_NE(b, a);
  EXPECT_EQ(get(8 * kMiB, one), a) << "the stream's own order protects it";
}

TEST_F(Blocks, RecordedOnAnotherStreamWaitForIt) {
  const StreamId own = new_stream(), other = new_stream();
  const uint64_t block = get(8 * kMiB, own);
  launch(other, block, 8 * kMiB, 1'000'000);
  EXPECT_EQ(allocator->record_stream(block, other), Status::kOk);
  EXPECT_EQ(allocator->record_stream(block, own), Status::kOk);
  put(block);
  EXPECT_EQ(memory().pending, 8 * kMiB);
  EXPECT_EQ(allocator->free(block), Status::kNotFound);
  EXPECT_NE(get(8 * kMiB, own), block);
  table.cuStreamSynchronize(reinterpret_cast<CUstream>(other));
  EXPECT_NE(get(16 * kMiB, own), 0u);  // a miss looks at the events
  EXPECT_EQ(memory().pending, 0u);
  EXPECT_EQ(get(8 * kMiB, own), block);
}

TEST_F(Blocks, WaitForEveryStreamThatUsedThem) {
  const StreamId own = new_stream(), slow = new_stream(), quick = new_stream();
  const uint64_t block = get(8 * kMiB, own);
  launch(slow, block, 8 * kMiB, 1'000'000);
  EXPECT_EQ(allocator->record_stream(block, slow), Status::kOk);
  EXPECT_EQ(allocator->record_stream(block, quick), Status::kOk);
  put(block);
  table.cuStreamSynchronize(reinterpret_cast<CUstream>(quick));
  EXPECT_NE(get(16 * kMiB, own), 0u);  // a miss looks at the events
  EXPECT_EQ(memory().pending, 8 * kMiB) << "the slow one is not past it";
}

TEST_F(Blocks, PendingOnesComeBackWithoutAMissToo) {
  const StreamId own = new_stream(), other = new_stream();
  get(64 * kMiB, own);
  const uint64_t block = get(kMiB, own);
  allocator->record_stream(block, other);
  put(block);
  EXPECT_EQ(memory().pending, kMiB);
  const uint64_t cached = get(100 * kKiB, own);
  put(cached);
  for (int i = 0; i < 100 && memory().pending != 0; ++i) put(get(100 * kKiB, own));
  EXPECT_EQ(memory().pending, 0u);
}

TEST_F(Blocks, PeaksAreKeptUntilReset) {
  const uint64_t a = get(10 * kMiB), b = get(10 * kMiB);
  put(a);
  put(b);
  get(1000);
  EXPECT_EQ(memory().peak_live, 20 * kMiB);
  EXPECT_EQ(memory().peak_allocated, 20 * kMiB);
  EXPECT_EQ(memory().peak_reserved, 22 * kMiB);
  EXPECT_EQ(allocator->reset_peaks(kDevice), Status::kOk);
  EXPECT_EQ(memory().peak_live, 1000u);
  EXPECT_EQ(memory().peak_allocated, 1024u);
}

TEST_F(Blocks, OfAnUnknownDeviceAreRefused) {
  uint64_t address = 0;
  for (const int device : {-1, 7, 1000}) {
    failure.reset();
    EXPECT_NE(allocator->allocate(DeviceId{device}, {100, {}, 0}, &address, &failure), Status::kOk);
    ASSERT_NE(failure, nullptr);
    EXPECT_NE(failure->text, "");
  }
}

TEST_F(Blocks, EmptyCacheWaitsForTheWorkOnIt) {
  const StreamId stream = new_stream();
  const uint64_t block = get(8 * kMiB, stream), kept = get(kMiB, stream);
  launch(stream, block, 8 * kMiB, 5'000'000);
  put(block);
  EXPECT_EQ(allocator->empty_cache(kDevice), 8 * kMiB);
  EXPECT_EQ(counts().live_pages_bytes, kPage);
  EXPECT_EQ(counts().violations, 0u) << text(control->violations);
  put(kept);
}

}  // namespace
}  // namespace spillway::testing
