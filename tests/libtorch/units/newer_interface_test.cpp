// What LibTorch 2.12 and newer added to the allocator's interface and no Python program reaches. The card has
// 512 MiB; PYTORCH_CUDA_ALLOC_CONF has throw_on_cudamalloc_oom.
#include <ATen/Context.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>
#include <gtest/gtest.h>

#include <memory>
#include <tuple>
#include <vector>

#include "spillway/libtorch/allocator.h"

namespace {

namespace native = c10::cuda::CUDACachingAllocator;

constexpr size_t kMiB = size_t{1} << 20;

class NewerInterface : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(spillway_torch_install(), 0) << spillway_torch_error();
    at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
  }
  static native::CUDAAllocator& allocator() { return *native::get(); }
};

TEST_F(NewerInterface, IsThatOfTheVersionWhichIsLoaded) {
  EXPECT_EQ(allocator().name(), "spillway");
}

// The stack of a request, as far as this test goes.
struct Stack : c10::GatheredContext {};

std::shared_ptr<c10::GatheredContext> gather() {
  return std::make_shared<Stack>();
}

TEST_F(NewerInterface, AContextIsThatOfTheRequestWhichMadeTheBlock) {
  allocator().recordHistory(true, &gather, 100, native::RecordContext::ALL, true, {});
  void* recorded = allocator().raw_alloc(3 * kMiB);
  const std::shared_ptr<c10::GatheredContext> context = allocator().getContextForPointer(recorded);
  EXPECT_NE(dynamic_cast<Stack*>(context.get()), nullptr);
  int on_the_stack = 0;
  EXPECT_EQ(allocator().getContextForPointer(&on_the_stack), nullptr);
  allocator().raw_delete(recorded);
  EXPECT_EQ(allocator().getContextForPointer(recorded), nullptr);
  allocator().recordHistory(false, nullptr, 1, native::RecordContext::NEVER, true, {});
}

TEST_F(NewerInterface, ObserversHearOfARefusedRequest) {
  using Refusal =
      std::tuple<int64_t, int64_t, int64_t, int64_t>;  // device, asked, allocated, the card's bytes
  static std::vector<Refusal> heard;
  heard.clear();
  allocator().attachOomRejectionObserver([](int64_t device, size_t asked, size_t allocated, size_t total) {
    heard.emplace_back(device, asked, allocated, total);
  });
  void* held = allocator().raw_alloc(64 * kMiB);
  EXPECT_THROW(allocator().raw_alloc(1024 * kMiB), c10::OutOfMemoryError);
  EXPECT_THAT(heard, testing::ElementsAre(Refusal{0, 1024 * kMiB, 64 * kMiB, 512 * kMiB}));
  allocator().raw_delete(held);
}

#if SPILLWAY_LIBTORCH >= 213
class AllocationAtAnAddress : public NewerInterface {
 protected:
  void SetUp() override {
    NewerInterface::SetUp();
    free_address = allocator().raw_alloc(3 * kMiB);
    allocator().raw_delete(free_address);
  }
  uint64_t live_bytes() {
    return static_cast<uint64_t>(allocator().getDeviceStats(0).allocated_bytes[0].current);
  }

  void* free_address = nullptr;
};

TEST_F(AllocationAtAnAddress, IsABlockAsAnyOther) {
  const uint64_t before = live_bytes();
  {
    const c10::DataPtr block = allocator().allocateWithAddress(3 * kMiB, free_address);
    EXPECT_EQ(block.get(), free_address);
    EXPECT_EQ(block.device(), c10::Device(c10::DeviceType::CUDA, 0));
    EXPECT_EQ(live_bytes() - before, 3 * kMiB);
    size_t bytes = 0;
    EXPECT_NE(allocator().getBaseAllocation(block.get(), &bytes), nullptr);
  }
  EXPECT_EQ(live_bytes(), before);
  EXPECT_EQ(allocator().allocateWithAddress(3 * kMiB, free_address).get(), free_address);
}

TEST_F(AllocationAtAnAddress, IsRefusedWhereTheBytesAreInUse) {
  const c10::DataPtr block = allocator().allocateWithAddress(3 * kMiB, free_address);
  const uint64_t live = live_bytes();
  EXPECT_THROW(allocator().allocateWithAddress(3 * kMiB, free_address), c10::Error);
  EXPECT_EQ(live_bytes(), live);
}

TEST_F(AllocationAtAnAddress, IsRefusedInAnotherStreamsMemory) {
  const c10::cuda::CUDAStream before = c10::cuda::getCurrentCUDAStream();
  c10::cuda::setCurrentCUDAStream(c10::cuda::getStreamFromPool());
  EXPECT_THROW(allocator().allocateWithAddress(3 * kMiB, free_address), c10::Error);
  c10::cuda::setCurrentCUDAStream(before);
}

TEST_F(AllocationAtAnAddress, IsRefusedWhereTheAllocatorHasNothing) {
  int on_the_stack = 0;
  EXPECT_THROW(allocator().allocateWithAddress(kMiB, &on_the_stack), c10::Error);
}
#endif

}  // namespace
