// Pages shared between processes, seen from one: how long they are shared, what they cost, what happens when
// the driver fails. tests/libtorch/test_sharing.py has the processes.
#include <fcntl.h>

#include <filesystem>

#include "strategies/ladder/ladder.h"
#include "tests/allocator/simulated.h"

namespace spillway::testing {
namespace {

size_t open_descriptors() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

class Shared : public SimulatedDevice {
 protected:
  SharedBlock share(uint64_t address) {
    SharedBlock block;
    status = allocator->share(address, &block, &text_);
    check();
    return block;
  }

  uint64_t map(const SharedBlock& block) {
    uint64_t address = 0;
    status = allocator->map_shared(kDevice, block.pages, &address, &text_);
    check();
    return address;
  }

  std::string text_;
};

TEST_F(Shared, PagesHaveDescriptorsUntilTheLastBlockOnThemIsFree) {
  const uint64_t first = get(3 * kMiB), second = get(2 * kMiB);
  const size_t before = open_descriptors();
  const SharedBlock one = share(first), two = share(second);
  EXPECT_EQ(one.offset, 0u);
  EXPECT_EQ(two.offset, second % kPage);
  ASSERT_EQ(one.pages.size(), 2u);
  ASSERT_EQ(two.pages.size(), 2u);
  EXPECT_EQ(one.pages[1].descriptor, two.pages[0].descriptor) << "they meet on a page";
  EXPECT_EQ(open_descriptors(), before + 3);
  const SharedBlock again = share(first);
  EXPECT_EQ(again.pages[0].serial, one.pages[0].serial) << "shared once";
  put(first);
  EXPECT_EQ(open_descriptors(), before + 2) << "the common page is still shared";
  EXPECT_EQ(allocator->shared_descriptor(one.pages[0].serial), -1);
  const int copy = allocator->shared_descriptor(two.pages[0].serial);
  EXPECT_GE(copy, 0);
  close(copy);
  put(second);
  EXPECT_EQ(open_descriptors(), before);
  const uint64_t later = get(3 * kMiB);
  EXPECT_EQ(later, first);
  EXPECT_NE(share(later).pages[0].serial, one.pages[0].serial) << "another sharing of the same page";
  put(later);
}

// What the program starts would hold the memory. Not every driver sees to that.
TEST_F(Shared, DescriptorsEndWithTheProcess) {
  static driver::Table inherits = table;
  inherits.cuMemExportToShareableHandle = [](void* out, auto... arguments) {
    const CUresult result = simulated_table().cuMemExportToShareableHandle(out, arguments...);
    if (result == CUDA_SUCCESS) fcntl(*static_cast<int*>(out), F_SETFD, 0);
    return result;
  };
  allocator = std::make_unique<Allocator>(inherits);
  const uint64_t block = get(3 * kMiB);
  const SharedBlock shared = share(block);
  for (const SharedPage& page : shared.pages) EXPECT_EQ(fcntl(page.descriptor, F_GETFD), FD_CLOEXEC);
  const int copy = allocator->shared_descriptor(shared.pages[0].serial);
  EXPECT_EQ(fcntl(copy, F_GETFD), FD_CLOEXEC);
  close(copy);
  put(block);
}

TEST_F(Shared, WhatIsNoLiveBlockIsRefused) {
  const uint64_t block = get(kMiB);
  SharedBlock out;
  EXPECT_EQ(allocator->share(block + 512, &out, &text_), Status::kNotFound);
  put(block);
  EXPECT_EQ(allocator->share(block, &out, &text_), Status::kNotFound);
  EXPECT_NE(text_, "");
  uint64_t address = 0;
  EXPECT_EQ(allocator->map_shared(kDevice, {}, &address, &text_), Status::kInvalid);
  const std::vector<SharedPage> odd{{kPage + 1, 0, 0}}, nobody{{kPage, 0, 0}};
  EXPECT_EQ(allocator->map_shared(kDevice, odd, &address, &text_), Status::kInvalid);
  EXPECT_EQ(allocator->map_shared(kDevice, nobody, &address, &text_), Status::kDriverFailed);
  EXPECT_EQ(allocator->unmap_shared(block), Status::kNotFound);
}

TEST_F(Shared, WhatIsMappedCountsInNoAccount) {
  const uint64_t block = get(6 * kMiB);
  const Memory before = memory();
  const uint64_t mapped = map(share(block));
  ASSERT_NE(mapped, 0u) << text_;
  launch({}, mapped, 6 * kMiB);
  EXPECT_EQ(memory().reserved, before.reserved);
  EXPECT_EQ(counts().live_pages_bytes, before.reserved) << "charged once";
  EXPECT_EQ(allocator->unmap_shared(mapped), Status::kOk) << "waits for the kernel; else the referee reports";
  EXPECT_EQ(allocator->unmap_shared(mapped), Status::kNotFound);
  put(block);
}

TEST_F(Shared, StayInPlaceWhenMemoryIsStitched) {
  Ladder ladder(*allocator);
  ladder.add(make_stitch());
  ladder.add(make_release_cache(*allocator));
  allocator->set_handler(&ladder);
  std::vector<uint64_t> kept, holes;
  for (int i = 0; i < 16; ++i) (i % 2 == 0 ? kept : holes).push_back(get(15 * kMiB));
  std::vector<SharedBlock> shared;
  for (const uint64_t address : kept) shared.push_back(share(address));
  const uint64_t mapped = map(shared[3]);
  ASSERT_NE(mapped, 0u);
  for (const uint64_t address : holes) put(address);
  const uint64_t large = get(80 * kMiB);
  EXPECT_NE(large, 0u) << "stitched from the holes";
  for (size_t i = 0; i < kept.size(); ++i) {
    const SharedBlock now = share(kept[i]);
    EXPECT_EQ(now.offset, shared[i].offset);
    ASSERT_EQ(now.pages.size(), shared[i].pages.size());
    for (size_t page = 0; page < now.pages.size(); ++page)
      EXPECT_EQ(now.pages[page].serial, shared[i].pages[page].serial) << "the same page";
  }
  EXPECT_EQ(allocator->unmap_shared(mapped), Status::kOk);
  for (const uint64_t address : kept) put(address);
  put(large);
  allocator->set_handler(nullptr);
}

TEST_F(Shared, WaitWhenOtherStreamsUseThemToo) {
  const StreamId side = new_stream();
  const uint64_t block = get(4 * kMiB);
  const size_t before = open_descriptors();
  share(block);
  launch(side, block, 4 * kMiB);
  EXPECT_EQ(allocator->record_stream(block, side), Status::kOk);
  put(block);
  EXPECT_EQ(open_descriptors(), before);
  EXPECT_EQ(memory().pending, 4 * kMiB);
  EXPECT_NE(get(4 * kMiB), block);
}

TEST_F(Shared, ChangeNothingWhenTheDriverFailsAtAnyCall) {
  const uint64_t block = get(6 * kMiB);
  const size_t before = open_descriptors();
  bool failed = true;
  for (uint64_t n = 1; failed; ++n) {
    ASSERT_LT(n, 100u);
    const uint64_t fired = counts().injected_failures;
    control->fail_call(n, "cuMemExportToShareableHandle", 1, CUDA_ERROR_OPERATING_SYSTEM);
    SharedBlock out;
    status = allocator->share(block, &out, &text_);
    failed = counts().injected_failures != fired;
    control->fail_call(0, nullptr, 0, CUDA_SUCCESS);
    check();
    EXPECT_EQ(status == Status::kOk, !failed);
    if (!failed) continue;
    EXPECT_EQ(open_descriptors(), before);
    EXPECT_NE(text_.find("ulimit"), std::string::npos) << text_;
  }
  const SharedBlock shared = share(block);
  const uint64_t pages = counts().live_pages_bytes;
  failed = true;
  for (uint64_t n = 1; failed; ++n) {
    ASSERT_LT(n, 100u);
    const uint64_t fired = counts().injected_failures;
    control->fail_call(n, nullptr, 0, CUDA_ERROR_OUT_OF_MEMORY);
    const uint64_t mapped = map(shared);
    failed = counts().injected_failures != fired;
    control->fail_call(0, nullptr, 0, CUDA_SUCCESS);
    EXPECT_EQ(counts().live_pages_bytes, pages);
    EXPECT_TRUE(mapped != 0 || failed);
    if (mapped != 0) {
      EXPECT_EQ(allocator->unmap_shared(mapped), Status::kOk);
    }
  }
  put(block);
}

// The handle of an imported page holds the other process's memory.
TEST_F(Shared, AHandleThatTheDriverKeepsIsOfferedAgain) {
  const uint64_t block = get(2 * kMiB);
  const SharedBlock shared = share(block);
  control->fail_call(1, "cuMemRelease", 0, CUDA_ERROR_UNKNOWN);
  const uint64_t mapped = map(shared);
  ASSERT_NE(mapped, 0u);
  EXPECT_EQ(allocator->unmap_shared(mapped), Status::kOk);
  put(block);
  EXPECT_EQ(allocator->empty_cache(kDevice), 2 * kMiB);
  EXPECT_EQ(counts().live_pages_bytes, 0u);
}

TEST_F(Shared, MappingsOutliveACapture) {
  const uint64_t block = get(2 * kMiB);
  const uint64_t mapped = map(share(block));
  ASSERT_NE(mapped, 0u);
  const StreamId stream = new_stream();
  put(get(kMiB, stream));  // so that the allocator knows it
  auto* raw = reinterpret_cast<CUstream>(stream);
  ASSERT_EQ(table.cuStreamBeginCapture(raw, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  EXPECT_EQ(allocator->unmap_shared(mapped), Status::kOk);
  CUgraph graph = nullptr;
  EXPECT_EQ(table.cuStreamEndCapture(raw, &graph), CUDA_SUCCESS) << "the capture was not broken";
  table.cuGraphDestroy(graph);
  const uint64_t again = map(share(block));
  EXPECT_EQ(allocator->unmap_shared(again), Status::kOk);
  put(block);
}

}  // namespace
}  // namespace spillway::testing
