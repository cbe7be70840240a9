// Device and host memory, pointers and copies.
#include <cstring>
#include <numeric>
#include <vector>

#include "tests/simulator/runtime/fixture.h"

namespace spillway::runtime_test {
namespace {

std::vector<unsigned char> pattern(size_t bytes) {
  std::vector<unsigned char> made(bytes);
  std::iota(made.begin(), made.end(), static_cast<unsigned char>(1));
  return made;
}

TEST_F(Runtime, ManagedMemoryIsTheHostsAndTheDevices) {
  char* pointer = nullptr;
  ASSERT_EQ(cudaMallocManaged(reinterpret_cast<void**>(&pointer), 4096, cudaMemAttachHost), cudaSuccess);
  pointer[4095] = 7;
  const cudaMemLocation device{.type = cudaMemLocationTypeDevice, .id = 0};
  EXPECT_EQ(cudaMemAdvise(pointer, 4096, cudaMemAdviseSetPreferredLocation, device), cudaSuccess);
  EXPECT_EQ(cudaMemPrefetchAsync(pointer, 4096, device, 0, nullptr), cudaSuccess);
  cudaPointerAttributes attributes;
  EXPECT_EQ(cudaPointerGetAttributes(&attributes, pointer), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeManaged);
  EXPECT_EQ(attributes.hostPointer, pointer);
  EXPECT_EQ(pointer[4095], 7);
  EXPECT_EQ(cudaFree(pointer), cudaSuccess);
}

TEST_F(Runtime, AllocationsAreChargedAndRefusedAtCapacity) {
  size_t free_before = 0;
  size_t total = 0;
  ASSERT_EQ(cudaMemGetInfo(&free_before, &total), cudaSuccess);
  EXPECT_EQ(total, kCapacity);
  void* pointer = nullptr;
  ASSERT_EQ(cudaMalloc(&pointer, 64 * kMiB), cudaSuccess);
  size_t free_now = 0;
  ASSERT_EQ(cudaMemGetInfo(&free_now, &total), cudaSuccess);
  EXPECT_EQ(free_before - free_now, 64 * kMiB);
  void* refused = &refused;
  EXPECT_EQ(cudaMalloc(&refused, kCapacity), cudaErrorMemoryAllocation);
  EXPECT_EQ(refused, nullptr);
  EXPECT_EQ(cudaFree(pointer), cudaSuccess);
}

TEST_F(Runtime, NothingCanBeAllocatedAndFreed) {
  void* pointer = &pointer;
  EXPECT_EQ(cudaMalloc(&pointer, 0), cudaSuccess);
  EXPECT_EQ(pointer, nullptr);
  EXPECT_EQ(cudaFree(nullptr), cudaSuccess);
  EXPECT_EQ(cudaHostAlloc(&pointer, 0, cudaHostAllocDefault), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(nullptr), cudaSuccess);
  EXPECT_EQ(cudaMalloc(nullptr, 1), cudaErrorInvalidValue);
}

TEST_F(Runtime, PointerAttributesTellDeviceHostAndUnknown) {
  void* on_device = nullptr;
  void* on_host = nullptr;
  int local = 0;
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  ASSERT_EQ(cudaMalloc(&on_device, kMiB), cudaSuccess);
  ASSERT_EQ(cudaHostAlloc(&on_host, kMiB, cudaHostAllocDefault), cudaSuccess);
  cudaPointerAttributes attributes;
  ASSERT_EQ(cudaPointerGetAttributes(&attributes, static_cast<char*>(on_device) + 100), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);
  EXPECT_EQ(attributes.device, 1);
  EXPECT_EQ(attributes.devicePointer, static_cast<char*>(on_device) + 100);
  ASSERT_EQ(cudaPointerGetAttributes(&attributes, on_host), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeHost);
  ASSERT_EQ(cudaPointerGetAttributes(&attributes, &local), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeUnregistered);
  EXPECT_EQ(attributes.device, cudaInvalidDeviceId);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(on_host), cudaSuccess);
  EXPECT_EQ(cudaFree(on_device), cudaSuccess);
}

TEST_F(Runtime, RegisteredHostMemoryIsHostMemory) {
  alignas(4096) static char buffer[8192];
  ASSERT_EQ(cudaHostRegister(buffer, sizeof buffer, cudaHostRegisterDefault), cudaSuccess);
  cudaPointerAttributes attributes;
  ASSERT_EQ(cudaPointerGetAttributes(&attributes, buffer), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeHost);
  EXPECT_EQ(cudaHostUnregister(buffer), cudaSuccess);
  ASSERT_EQ(cudaPointerGetAttributes(&attributes, buffer), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeUnregistered);
}

TEST_F(Runtime, CopiesCarryBytesInEveryDirection) {
  const auto sent = pattern(4096);
  std::vector<unsigned char> received(sent.size());
  void* first = nullptr;
  void* second = nullptr;
  ASSERT_EQ(cudaMalloc(&first, sent.size()), cudaSuccess);
  ASSERT_EQ(cudaMalloc(&second, sent.size()), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(first, sent.data(), sent.size(), cudaMemcpyHostToDevice), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(second, first, sent.size(), cudaMemcpyDeviceToDevice), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(received.data(), second, sent.size(), cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(received, sent);
  EXPECT_EQ(cudaFree(first), cudaSuccess);
  EXPECT_EQ(cudaFree(second), cudaSuccess);
}

TEST_F(Runtime, DefaultDirectionIsFoundFromThePointers) {
  const auto sent = pattern(1000);
  std::vector<unsigned char> middle(sent.size());
  std::vector<unsigned char> received(sent.size());
  void* device = nullptr;
  ASSERT_EQ(cudaMalloc(&device, sent.size()), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(middle.data(), sent.data(), sent.size(), cudaMemcpyDefault), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(device, middle.data(), sent.size(), cudaMemcpyDefault, nullptr), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(received.data(), device, sent.size(), cudaMemcpyDefault, nullptr), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  EXPECT_EQ(received, sent);
  EXPECT_EQ(cudaMemcpy(device, sent.data(), 1, static_cast<cudaMemcpyKind>(9)),
            cudaErrorInvalidMemcpyDirection);
  EXPECT_EQ(cudaFree(device), cudaSuccess);
}

TEST_F(Runtime, RowsAreCopiedWithTheirPitches) {
  const auto sent = pattern(8 * 16);
  std::vector<unsigned char> received(8 * 4);
  void* device = nullptr;
  ASSERT_EQ(cudaMalloc(&device, sent.size()), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(device, sent.data(), sent.size(), cudaMemcpyHostToDevice), cudaSuccess);
  ASSERT_EQ(cudaMemcpy2DAsync(received.data(), 4, device, 16, 4, 8, cudaMemcpyDeviceToHost, nullptr),
            cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  for (size_t row = 0; row < 8; ++row) {
    EXPECT_EQ(std::memcmp(&received[row * 4], &sent[row * 16], 4), 0) << "row " << row;
  }
  EXPECT_EQ(cudaMemcpy2DAsync(device, 2, sent.data(), 16, 4, 8, cudaMemcpyHostToDevice, nullptr),
            cudaErrorInvalidPitchValue);
  EXPECT_EQ(cudaFree(device), cudaSuccess);
}

TEST_F(Runtime, BatchesAndRowsCarryBytes) {
  void* pinned = nullptr;
  void* pitched = nullptr;
  size_t pitch = 0;
  ASSERT_EQ(cudaMallocHost(&pinned, 100), cudaSuccess);
  ASSERT_EQ(cudaMallocPitch(&pitched, &pitch, 10, 10), cudaSuccess);
  auto source = pattern(100);
  ASSERT_EQ(cudaMemset2D(pitched, pitch, 9, 10, 10), cudaSuccess);
  ASSERT_EQ(cudaMemcpy2D(pitched, pitch, source.data(), 10, 10, 5, cudaMemcpyHostToDevice), cudaSuccess);
  ASSERT_EQ(cudaMemcpy2D(pinned, 10, pitched, pitch, 10, 10, cudaMemcpyDeviceToHost), cudaSuccess);
  std::vector<unsigned char> expected(source.begin(), source.begin() + 50);
  expected.resize(100, 9);
  EXPECT_EQ(std::memcmp(pinned, expected.data(), 100), 0);

  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  auto* bytes = static_cast<unsigned char*>(pitched);
  void* to[] = {bytes, bytes + 20};
  const void* from[] = {source.data() + 1, source.data() + 50};
  const size_t sizes[] = {10, 5};
  ASSERT_EQ(cudaMemcpyBatchAsync(to, from, sizes, 2, nullptr, nullptr, 0, stream), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(pinned, bytes, 25, cudaMemcpyDeviceToHost, stream), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(std::memcmp(pinned, source.data() + 1, 10), 0);
  EXPECT_EQ(std::memcmp(static_cast<unsigned char*>(pinned) + 20, source.data() + 50, 5), 0);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
  EXPECT_EQ(cudaFree(pitched), cudaSuccess);
}

TEST_F(Runtime, PoolsAreMadeAndGiveMemory) {
  cudaMemPoolProps properties;
  std::memset(&properties, 0, sizeof properties);
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id = 1;
  cudaMemPool_t pool = nullptr;
  cudaMemPool_t current = nullptr;
  ASSERT_EQ(cudaMemPoolCreate(&pool, &properties), cudaSuccess);
  ASSERT_EQ(cudaDeviceSetMemPool(1, pool), cudaSuccess);
  ASSERT_EQ(cudaDeviceGetMemPool(&current, 1), cudaSuccess);
  EXPECT_EQ(current, pool);
  void* memory = nullptr;
  ASSERT_EQ(cudaMallocFromPoolAsync(&memory, kMiB, pool, nullptr), cudaSuccess);
  cudaPointerAttributes attributes;
  ASSERT_EQ(cudaPointerGetAttributes(&attributes, memory), cudaSuccess);
  EXPECT_EQ(attributes.device, 1);
  EXPECT_EQ(cudaFreeAsync(memory, nullptr), cudaSuccess);
  EXPECT_EQ(cudaMemPoolDestroy(pool), cudaSuccess);
}

TEST_F(Runtime, MemsetFillsBytes) {
  std::vector<unsigned char> received(512);
  void* device = nullptr;
  ASSERT_EQ(cudaMalloc(&device, received.size()), cudaSuccess);
  ASSERT_EQ(cudaMemset(device, 7, received.size()), cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(device, 0x1ff, 256, nullptr), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(received.data(), device, received.size(), cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(received[255], 0xff);
  EXPECT_EQ(received[256], 7);
  EXPECT_EQ(cudaFree(device), cudaSuccess);
}

}  // namespace
}  // namespace spillway::runtime_test
