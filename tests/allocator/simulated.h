// A simulated device for the tests of the allocator and of the strategies: the referee's verdict belongs to
// each test.
#pragma once
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "allocator/allocator.h"
#include "allocator/pages/supply/handle_sizes.h"
#include "driver/table.h"

namespace spillway::testing {

inline constexpr uint64_t kKiB = 1 << 10, kMiB = 1 << 20;
inline constexpr uint64_t kPage = 2 * kMiB;
inline constexpr DeviceId kDevice{0};

inline const driver::Table& simulated_table() {
  static const driver::Table* table = [] {
    const char* build = std::getenv("SPILLWAY_BUILD_DIR");
    const std::string path = std::string(build == nullptr ? "." : build) + "/lib/sim/libcuda.so.1";
    driver::LoadError error;
    const driver::Table* resolved = driver::resolve(path.c_str(), &error);
    if (resolved == nullptr) {
      std::fprintf(stderr, "%s\n", error.text.c_str());
      std::abort();
    }
    return resolved;
  }();
  return *table;
}

class SimulatedDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    table.cuInit(0);
    table.cuDevicePrimaryCtxRetain(&context_, 0);
    table.cuCtxSetCurrent(context_);
    control->reset();
    set_capacity(256 * kMiB);
    restart();
  }

  void TearDown() override {
    for (CUstream stream : streams_) table.cuStreamSynchronize(stream);
    allocator.reset();
    for (CUstream stream : streams_) table.cuStreamDestroy(stream);
    EXPECT_EQ(text(control->violations), "");
    EXPECT_EQ(text(control->leaks), "") << "after the allocator has given everything back";
    control->reset();
    table.cuDevicePrimaryCtxRelease(0);
  }

  void restart() {
    allocator.reset();
    allocator = std::make_unique<Allocator>(table);
    allocator->set_handle_rule(handle_rule);
  }

  void set_capacity(uint64_t bytes) { ASSERT_EQ(control->set_capacity(0, bytes), CUDA_SUCCESS); }

  StreamId new_stream(unsigned flags = CU_STREAM_NON_BLOCKING) {
    CUstream stream = nullptr;
    EXPECT_EQ(table.cuStreamCreate(&stream, flags), CUDA_SUCCESS);
    streams_.push_back(stream);
    return StreamId{reinterpret_cast<uint64_t>(stream)};
  }

  // A kernel of `us` on `stream` that writes [address, address + bytes).
  void launch(StreamId stream, uint64_t address, uint64_t bytes, uint64_t us = 1000) {
    const SpillwayRange range{address, bytes, 1};
    ASSERT_EQ(
        control->submit(reinterpret_cast<CUstream>(stream), "kernel", &range, 1, us * 1000, nullptr, nullptr),
        CUDA_SUCCESS);
  }

  // 0 on failure; `status` tells which.
  uint64_t get(uint64_t bytes, StreamId stream = {}, uint64_t pool = 0) {
    uint64_t address = 0;
    failure.reset();
    status = allocator->allocate(kDevice, {bytes, stream, pool}, &address, &failure);
    check();
    return address;
  }

  void put(uint64_t address) {
    EXPECT_EQ(allocator->free(address), Status::kOk);
    check();
  }

  // Allocations and frees, so that what was allocated before counts as cold. The invariants are looked at now
  // and then: they walk every page.
  void let_time_pass(int orders = 100) {
    for (int i = 0; i < orders / 2; ++i) {
      uint64_t address = 0;
      status = allocator->allocate(kDevice, {512, {}, 0}, &address, nullptr);
      EXPECT_EQ(allocator->free(address), Status::kOk);
      if (i % 100 == 0) check();
    }
    check();
  }

  Memory memory() {
    Memory memory;
    EXPECT_EQ(allocator->memory(kDevice, &memory), Status::kOk);
    EXPECT_EQ(memory.limit, memory.sum()) << "the equation does not close";
    return memory;
  }

  void check() {
    std::string broken;
    ASSERT_TRUE(allocator->check_invariants(&broken)) << broken;
    memory();
  }

  SpillwaySimulatorCounts counts() {
    SpillwaySimulatorCounts counts{};
    control->counts(&counts);
    return counts;
  }

  static std::string text(size_t (*report)(char*, size_t)) {
    std::string out(report(nullptr, 0), '\0');
    report(out.data(), out.size() + 1);
    return out;
  }

  const driver::Table& table = simulated_table();
  const SpillwaySimulatorControl* control = table.simulator;
  HandleRule handle_rule{.most_bytes = kPage};  // single pages, where a test does not say otherwise
  std::unique_ptr<Allocator> allocator;
  Status status = Status::kOk;
  FailurePtr failure;

 private:
  CUcontext context_ = nullptr;
  std::vector<CUstream> streams_;
};

}  // namespace spillway::testing
