// What the tests of NCCL's stand-in share: ranks as threads, each on a card of its own, with a stream and
// buffers.
#pragma once
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "driver/simulator_control.h"

namespace spillway::nccl_test {

constexpr size_t kMiB = size_t{1} << 20;

inline const SpillwaySimulatorControl& control() {
  static const SpillwaySimulatorControl* found = [] {
    void* driver = dlopen("libcuda.so.1", RTLD_NOW);
    return reinterpret_cast<SpillwaySimulatorControlFunction>(dlsym(driver, "spillway_simulator_control"))();
  }();
  return *found;
}

inline bool computing() {
  return control().mode() == SPILLWAY_SIMULATOR_COMPUTE;
}

inline std::string violations() {
  char text[8192];
  control().violations(text, sizeof text);
  return text;
}

inline uint64_t modelled_bytes(int device) {
  SpillwaySimulatorUsage usage;
  EXPECT_EQ(control().usage(device, &usage), CUDA_SUCCESS);
  for (uint32_t i = 0; i < usage.part_count; ++i)
    if (std::strcmp(usage.parts[i].label, "nccl") == 0) return usage.parts[i].bytes;
  return 0;
}

// Device memory with host values in it.
template <typename T>
class Buffer {
 public:
  explicit Buffer(size_t count) : count_(count) {
    EXPECT_EQ(cudaMalloc(&address_, std::max<size_t>(count, 1) * sizeof(T)), cudaSuccess);
  }
  explicit Buffer(const std::vector<T>& values) : Buffer(values.size()) {
    EXPECT_EQ(cudaMemcpy(address_, values.data(), count_ * sizeof(T), cudaMemcpyHostToDevice), cudaSuccess);
  }
  ~Buffer() { EXPECT_EQ(cudaFree(address_), cudaSuccess); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  T* get() const { return static_cast<T*>(address_); }
  std::vector<T> values() const {
    std::vector<T> out(count_);
    EXPECT_EQ(cudaMemcpy(out.data(), address_, count_ * sizeof(T), cudaMemcpyDeviceToHost), cudaSuccess);
    return out;
  }

 private:
  void* address_ = nullptr;
  size_t count_;
};

struct Rank {
  int number, count;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;

  cudaError_t wait() const { return cudaStreamSynchronize(stream); }
  ncclResult_t state() const {
    ncclResult_t result = ncclNumResults;
    EXPECT_EQ(ncclCommGetAsyncError(comm, &result), ncclSuccess);
    return result;
  }
};

inline ncclUniqueId unique_id() {
  ncclUniqueId id = {};
  EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess) << ncclGetLastError(nullptr);
  return id;
}

// Runs `body` for each number in a thread on the card of that number.
inline void on_cards(int count, const std::function<void(int)>& body) {
  std::vector<std::jthread> threads;
  for (int number = 0; number < count; ++number)
    threads.emplace_back([&, number] {
      ASSERT_EQ(cudaSetDevice(number), cudaSuccess);
      body(number);
    });
}

inline void with_ranks(int count, const std::function<void(Rank&)>& body) {
  const ncclUniqueId id = unique_id();
  on_cards(count, [&](int number) {
    Rank rank{.number = number, .count = count};
    ASSERT_EQ(ncclCommInitRank(&rank.comm, count, id, number), ncclSuccess) << ncclGetLastError(nullptr);
    ASSERT_EQ(cudaStreamCreateWithFlags(&rank.stream, cudaStreamNonBlocking), cudaSuccess);
    body(rank);
    EXPECT_EQ(cudaStreamDestroy(rank.stream), cudaSuccess);
    if (rank.comm) {
      EXPECT_EQ(ncclCommDestroy(rank.comm), ncclSuccess);
    }
  });
}

// Every test leaves no violation behind.
class Nccl : public ::testing::Test {
 protected:
  void TearDown() override { EXPECT_EQ(violations(), ""); }
};

}  // namespace spillway::nccl_test
