// Two devices in a process: each has a limit, a heap and an order of its own; and memory that outlives main.
#include <cstdlib>

#include "allocator/streams/program_streams.h"
#include "tests/allocator/simulated.h"

namespace spillway::testing {
namespace {

class Devices : public SimulatedDevice {
 protected:
  uint64_t get_on(int device, uint64_t bytes) {
    uint64_t address = 0;
    CUcontext context = nullptr;
    table.cuDevicePrimaryCtxRetain(&context, device);
    table.cuCtxPushCurrent(context);
    status = allocator->allocate(DeviceId{device}, {bytes, {}, 0}, &address, nullptr);
    table.cuCtxPopCurrent(&context);
    table.cuDevicePrimaryCtxRelease(device);
    check();
    return address;
  }
  // The context of device 1 for a scope.
  struct OnSecond {
    explicit OnSecond(const driver::Table& driver) : table(driver) {
      CUcontext context = nullptr;
      table.cuDevicePrimaryCtxRetain(&context, 1);
      table.cuCtxPushCurrent(context);
    }
    ~OnSecond() {
      CUcontext context = nullptr;
      table.cuCtxPopCurrent(&context);
      table.cuDevicePrimaryCtxRelease(1);
    }
    const driver::Table& table;
  };
  // A block of device 0 that a kernel of device 1 uses for a long time, on `stream`.
  uint64_t use_on_second(CUstream stream) {
    const uint64_t block = get_on(0, kUsedBytes);
    std::string wrong;
    EXPECT_EQ(allocator->grant(DeviceId{0}, DeviceId{1}, &wrong), Status::kOk) << wrong;
    {
      const OnSecond scope(table);
      const StreamId id{reinterpret_cast<uint64_t>(stream)};
      launch(id, block, kUsedBytes, kLongUs);
      EXPECT_EQ(allocator->record_stream(block, id), Status::kOk);
    }
    return block;
  }
  void expect_to_wait(CUstream stream, uint64_t block) {
    put(block);
    EXPECT_NE(get_on(0, kUsedBytes), block) << "device 1 uses it still";
    {
      const OnSecond scope(table);
      table.cuStreamSynchronize(stream);
    }
    EXPECT_EQ(allocator->empty_cache(DeviceId{0}), kUsedBytes);
  }
  static constexpr uint64_t kUsedBytes = 8 * kMiB, kLongUs = 50'000;

  Memory memory_of(int device) {
    Memory out;
    EXPECT_EQ(allocator->memory(DeviceId{device}, &out), Status::kOk);
    EXPECT_EQ(out.limit, out.sum());
    return out;
  }
};

TEST_F(Devices, HaveLimitsOfTheirOwn) {
  allocator->limit(DeviceId{0}, 8 * kMiB);
  allocator->limit(DeviceId{1}, 16 * kMiB);
  const uint64_t first = get_on(0, 8 * kMiB), second = get_on(1, 12 * kMiB);
  ASSERT_TRUE(first != 0 && second != 0);
  EXPECT_EQ(get_on(0, kMiB), 0u);
  EXPECT_NE(get_on(1, kMiB), 0u);
  EXPECT_EQ(memory_of(0).live, 8 * kMiB);
  EXPECT_EQ(memory_of(1).live, 13 * kMiB);
  EXPECT_EQ(allocator->free(second), Status::kOk) << "from any thread and device";
  EXPECT_EQ(memory_of(1).live, kMiB);
  EXPECT_EQ(allocator->empty_cache(DeviceId{1}), 12 * kMiB);
  BlockInfo block;
  EXPECT_EQ(allocator->find_block(first + 5, &block), Status::kOk);
  EXPECT_EQ(block.address, first);
}

TEST_F(Devices, TheMemoryOfAnUnusedOneIsAskedForWithoutAContextThere) {
  ASSERT_EQ(control->set_capacity(1, 64 * kMiB), CUDA_SUCCESS);
  const uint64_t contexts = control->calls("cuDevicePrimaryCtxRetain");
  EXPECT_EQ(memory_of(1).limit, 64 * kMiB);
  EXPECT_EQ(memory_of(1).device, 64 * kMiB);
  allocator->limit_all(8 * kMiB);
  EXPECT_EQ(memory_of(1).limit, 8 * kMiB);
  EXPECT_EQ(control->calls("cuDevicePrimaryCtxRetain"), contexts);
  EXPECT_FALSE(allocator->uses(DeviceId{1}));
  Memory unread;
  for (const int none : {-1, 2, 64}) EXPECT_EQ(allocator->memory(DeviceId{none}, &unread), Status::kNotFound);
}

TEST_F(Devices, LimitsOfAllHoldForThoseStartedLater) {
  allocator->limit_all(8 * kMiB);
  EXPECT_EQ(get_on(1, 9 * kMiB), 0u);
  EXPECT_NE(get_on(1, 8 * kMiB), 0u);
}

TEST_F(Devices, PagesOfAnotherAreNotMapped) {
  const uint64_t first = get_on(0, kMiB), second = get_on(1, kMiB);
  SharedBlock shared;
  std::string text;
  ASSERT_EQ(allocator->share(second, &shared, &text), Status::kOk) << text;
  uint64_t address = 0;
  EXPECT_EQ(allocator->map_shared(DeviceId{0}, shared.pages, &address, &text), Status::kDriverFailed);
  EXPECT_NE(text.find("CUDA_VISIBLE_DEVICES"), std::string::npos) << text;
  ASSERT_EQ(allocator->map_shared(DeviceId{1}, shared.pages, &address, &text), Status::kOk) << text;
  EXPECT_EQ(allocator->unmap_shared(address), Status::kOk);
  for (const uint64_t block : {first, second}) EXPECT_EQ(allocator->free(block), Status::kOk);
}

TEST_F(Devices, ABlockWaitsForAStreamOfAnother) {
  const OnSecond alive(table);
  CUstream stream = nullptr;
  ASSERT_EQ(table.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  const uint64_t block = use_on_second(stream);
  expect_to_wait(stream, block);
  table.cuStreamDestroy(stream);
}

TEST_F(Devices, ABlockWaitsForTheDefaultStreamOfAnother) {
  const OnSecond alive(table);
  expect_to_wait(nullptr, use_on_second(nullptr));
}

TEST_F(Devices, ABlockWaitsForAStreamOfAnotherThatIsGone) {
  const OnSecond alive(table);
  CUstream stream = nullptr;
  ASSERT_EQ(table.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  const uint64_t before = counts().virtual_ns;
  const uint64_t block = use_on_second(stream);
  stream_ends(*allocator, StreamId{reinterpret_cast<uint64_t>(stream)});
  table.cuStreamDestroy(stream);
  put(block);
  EXPECT_GE(counts().virtual_ns, before + kLongUs * 1000) << "the other device was waited for";
  EXPECT_EQ(get_on(0, kUsedBytes), block);
}

TEST_F(Devices, ShareOneOrderOfRareEvents) {
  get_on(0, kMiB);
  for (int i = 0; i < 10; ++i) get_on(1, kMiB);
  const uint64_t between = allocator->next_order();
  const uint64_t later = allocator->next_order();
  EXPECT_GT(later, between);
  EXPECT_GE(between, 11u);
}

}  // namespace
}  // namespace spillway::testing

int main(int argc, char** argv) {
  // The simulator counts its devices when it is loaded.
  setenv("SPILLWAY_SIM_DEVICES", "2", 1);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
