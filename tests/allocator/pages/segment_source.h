// A pool whose segments come from a library of the test's.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "allocator/segments/sources.h"
#include "strategies/ladder/ladder.h"
#include "tests/allocator/simulated.h"

namespace spillway::testing {

// Hands out addresses that nothing lies behind, or memory of the driver's, in PyTorch's sizes, and checks
// what comes back.
class Library {
 public:
  ~Library() { EXPECT_TRUE(made_.empty()) << "segments were not given back"; }

  spillway_segment_source functions() {
    return {sizeof(spillway_segment_source),
            this,
            &Library::segment_bytes,
            &Library::allocate,
            &Library::free,
            &Library::end};
  }

  std::vector<uint64_t> asked, freed;
  uint64_t next = uint64_t{1} << 45, most = UINT64_MAX;
  uint32_t answer = SPILLWAY_SEGMENT_MADE;
  int ends = 0;
  std::function<void()> while_sized, while_asked, while_freed, after_freed;
  const driver::Table* driver = nullptr;

 private:
  static Library& of(void* context) { return *static_cast<Library*>(context); }
  static uint64_t segment_bytes(void* context, uint64_t bytes) {
    if (of(context).while_sized) of(context).while_sized();
    return bytes <= kMiB ? kPage : bytes < 10 * kMiB ? 20 * kMiB : bytes;
  }
  static uint32_t allocate(void* context, uint64_t bytes, uint64_t* address) {
    Library& self = of(context);
    EXPECT_EQ(self.ends, 0);
    self.asked.push_back(bytes);
    if (self.while_asked) self.while_asked();
    if (self.answer != SPILLWAY_SEGMENT_MADE) return self.answer;
    if (bytes > self.most) return SPILLWAY_SEGMENT_REFUSED;
    self.most -= bytes;
    *address = std::exchange(self.next, self.next + bytes);
    if (self.driver != nullptr) {
      CUdeviceptr made = 0;
      EXPECT_EQ(self.driver->cuMemAlloc(&made, bytes), CUDA_SUCCESS);
      *address = made;
    }
    self.made_[*address] = bytes;
    return SPILLWAY_SEGMENT_MADE;
  }
  static void free(void* context, uint64_t address, uint64_t bytes) {
    Library& self = of(context);
    if (self.while_freed) self.while_freed();
    EXPECT_EQ(self.made_[address], bytes);
    self.made_.erase(address);
    if (self.driver != nullptr) {
      EXPECT_EQ(self.driver->cuMemFree(address), CUDA_SUCCESS);
    }
    self.freed.push_back(bytes);
    if (self.after_freed) self.after_freed();
  }
  static void end(void* context) { ++of(context).ends; }

  std::map<uint64_t, uint64_t> made_;
};

class SegmentSourceTest : public SimulatedDevice {
 protected:
  static constexpr uint64_t kPool = 5;

  void SetUp() override {
    SimulatedDevice::SetUp();
    EXPECT_EQ(set_source(*allocator, kDevice, kPool, library.functions()), Status::kOk);
  }
  void TearDown() override {
    SimulatedDevice::TearDown();
    EXPECT_EQ(library.ends, 1);
  }

  uint64_t get_there(uint64_t bytes, StreamId stream = {}) { return get(bytes, stream, kPool); }
  void set(uint32_t flags, uint64_t pool = kPool) {
    EXPECT_EQ(allocator->set_pool(kDevice, pool, flags), Status::kOk);
    check();
  }
  uint64_t give_back(uint64_t pool = kEveryPool) {
    const uint64_t bytes = empty_sources(*allocator, kDevice, pool);
    check();
    return bytes;
  }
  void add_ladder() {
    ladder = std::make_unique<Ladder>(*allocator);
    ladder->add(make_release_cache(*allocator));
    allocator->set_handler(ladder.get());
  }

  Library library;
  std::unique_ptr<Ladder> ladder;
};

}  // namespace spillway::testing
