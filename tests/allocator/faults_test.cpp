// The driver fails at its n-th call, for every n, once and for good, for want of memory and for another
// reason: nothing leaks, every invariant holds, and each request is served or refused with the right status.
#include "allocator/pages/idle_pages.h"
#include "strategies/ladder/ladder.h"
#include "tests/allocator/simulated.h"

namespace spillway::testing {
namespace {

struct Fault {
  const char* label;
  const char* function;  // null: any that allocates or maps
  bool persistent;
  CUresult code;
  uint64_t least_calls;  // a sweep that ends sooner has tested nothing
};

class Faults : public SimulatedDevice, public ::testing::WithParamInterface<Fault> {
 protected:
  // A program that grows, stitches, waits for another stream, releases, and lowers its limit.
  void run_program() {
    const StreamId own = new_stream(), other = new_stream();
    std::vector<uint64_t> blocks;
    for (int i = 0; i < 8; ++i) blocks.push_back(request(4 * kMiB, own));
    blocks.push_back(request(1000, own));
    for (size_t i = 1; i < 8; i += 2) release(blocks[i]);
    blocks[1] = request(14 * kMiB, own);
    if (blocks[0] != 0) allocator->record_stream(blocks[0], other);
    release(blocks[0]);
    blocks[3] = request(4 * kMiB, own);
    blocks[5] = request(4 * kMiB, other);
    for (const size_t i : {1, 3, 5}) release(blocks[i]);
    allocator->limit(kDevice, 24 * kMiB);
    check();
    blocks[7] = request(8 * kMiB, own);
    for (const size_t i : {2, 4, 6, 7, 8}) release(blocks[i]);
    allocator->empty_cache(kDevice);
    check();
  }

  uint64_t request(uint64_t bytes, StreamId stream) {
    uint64_t address = 0;
    FailurePtr why;
    const Status got = allocator->allocate(kDevice, {bytes, stream, 0}, &address, &why);
    check();
    if (got == Status::kOk) return address;
    ++refused;
    EXPECT_EQ(address, 0u);
    const bool memory_error = GetParam().code == CUDA_ERROR_OUT_OF_MEMORY;
    if (got == Status::kDriverFailed) {
      EXPECT_FALSE(memory_error) << why->text;
      EXPECT_NE(why->text.find("CUDA_ERROR"), std::string::npos) << why->text;
    }
    return 0;
  }

  void release(uint64_t& address) {
    if (address == 0) return;
    EXPECT_EQ(allocator->free(address), Status::kOk);
    address = 0;
    check();
  }

  void new_allocator() {
    restart();
    ladder = std::make_unique<Ladder>(*allocator);
    ladder->add(make_wait_for_events());
    ladder->add(make_stitch());
    ladder->add(make_release_cache(*allocator));
    allocator->set_handler(ladder.get());
    allocator->limit(kDevice, 36 * kMiB);
  }

  void sweep() {
    uint64_t fired = 1;
    uint64_t n = 1;
    for (; fired != 0; ++n) {
      ASSERT_LT(n, 1000u) << "the sweep does not end";
      new_allocator();
      refused = 0;
      control->reset();
      control->fail_call(n, GetParam().function, GetParam().persistent ? 1 : 0, GetParam().code);
      run_program();
      fired = counts().injected_failures;
      const bool rescued = !GetParam().persistent && GetParam().code == CUDA_ERROR_OUT_OF_MEMORY;
      if (fired == 0 || rescued) {
        EXPECT_EQ(refused, 0) << "call " << n << ": memory that was refused once is asked for again";
      }
      control->fail_call(0, nullptr, 0, CUDA_SUCCESS);
      EXPECT_EQ(text(control->violations), "") << "call " << n;
      EXPECT_EQ(memory().live, 0u) << "call " << n;
      allocator.reset();
      EXPECT_EQ(counts().live_pages_bytes, 0u) << "call " << n;
    }
    EXPECT_GT(n, GetParam().least_calls) << "the sweep hardly reached anything";
  }

  std::unique_ptr<Ladder> ladder;
  int refused = 0;
};

TEST_P(Faults, LeaveTheStateWholeAtEveryCall) {
  sweep();
}

// The same with handles of many pages, which are divided where they do not fit.
class LargeHandlesFaults : public Faults {
 protected:
  LargeHandlesFaults() { handle_rule = {.most_bytes = 8 * kMiB, .share = 2}; }
};

TEST_P(LargeHandlesFaults, LeaveTheStateWholeAtEveryCall) {
  sweep();
}

class PartialMap : public SimulatedDevice {};

// A place with a hole between two voids takes two maps: the second may fail when the first is done.
TEST_F(PartialMap, IsUndone) {
  std::vector<uint64_t> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(get(4 * kMiB));
  put(blocks[0]);
  put(blocks[2]);
  ASSERT_EQ(allocator->empty_cache(kDevice), 8 * kMiB);
  put(blocks[1]);
  for (const char* function : {"cuMemMap", "cuMemSetAccess", "cuMemCreate"}) {
    const bool access = function == std::string("cuMemSetAccess");
    for (uint64_t n = 1; n <= (access ? 2 : 4); ++n) {
      control->reset();
      control->fail_call(n, function, 0, CUDA_ERROR_UNKNOWN);
      EXPECT_EQ(get(12 * kMiB), 0u) << function << " " << n;
      EXPECT_EQ(status, Status::kDriverFailed);
      EXPECT_EQ(counts().injected_failures, 1u);
      EXPECT_EQ(memory().stranded, 0u);
      EXPECT_EQ(counts().live_pages_bytes, memory().reserved);
      EXPECT_EQ(get(12 * kMiB), blocks[0]) << function << " " << n << ": nothing is left mapped in the way";
      put(blocks[0]);
      EXPECT_EQ(allocator->empty_cache(kDevice), 12 * kMiB);
      // The hole in the middle again.
      ASSERT_EQ(get(12 * kMiB), blocks[0]);
      put(blocks[0]);
      const uint64_t left = get(4 * kMiB), middle = get(4 * kMiB), right = get(4 * kMiB);
      ASSERT_EQ(middle, blocks[1]);
      put(left);
      put(right);
      ASSERT_EQ(allocator->empty_cache(kDevice), 8 * kMiB);
      put(middle);
    }
  }
}

constexpr CUresult kShort = CUDA_ERROR_OUT_OF_MEMORY, kBroken = CUDA_ERROR_UNKNOWN;
INSTANTIATE_TEST_SUITE_P(, LargeHandlesFaults,
                         ::testing::Values(Fault{"ShortOnce", nullptr, false, kShort, 25},
                                           Fault{"ShortForGood", nullptr, true, kShort, 5},
                                           Fault{"BrokenOnce", nullptr, false, kBroken, 25},
                                           Fault{"BrokenForGood", nullptr, true, kBroken, 5},
                                           Fault{"UnmapOnce", "cuMemUnmap", false, kBroken, 2},
                                           Fault{"UnmapForGood", "cuMemUnmap", true, kBroken, 2},
                                           Fault{"ReleaseOnce", "cuMemRelease", false, kBroken, 5},
                                           Fault{"ReleaseForGood", "cuMemRelease", true, kBroken, 5},
                                           Fault{"AccessForGood", "cuMemSetAccess", true, kShort, 3}),
                         [](const auto& info) { return std::string(info.param.label); });

INSTANTIATE_TEST_SUITE_P(, Faults,
                         ::testing::Values(Fault{"ShortOnce", nullptr, false, kShort, 50},
                                           Fault{"ShortForGood", nullptr, true, kShort, 10},
                                           Fault{"BrokenOnce", nullptr, false, kBroken, 50},
                                           Fault{"BrokenForGood", nullptr, true, kBroken, 10},
                                           Fault{"UnmapOnce", "cuMemUnmap", false, kBroken, 3},
                                           Fault{"UnmapForGood", "cuMemUnmap", true, kBroken, 3},
                                           Fault{"ReleaseOnce", "cuMemRelease", false, kBroken, 10},
                                           Fault{"ReleaseForGood", "cuMemRelease", true, kBroken, 10},
                                           Fault{"AccessOnce", "cuMemSetAccess", false, kShort, 8},
                                           Fault{"AccessForGood", "cuMemSetAccess", true, kShort, 3},
                                           Fault{"RecordOnce", "cuEventRecord", false, kBroken, 2},
                                           Fault{"RecordForGood", "cuEventRecord", true, kBroken, 2},
                                           Fault{"WaitForGood", "cuEventSynchronize", true, kBroken, 2},
                                           Fault{"EventOnce", "cuEventCreate", false, kBroken, 1},
                                           Fault{"EventForGood", "cuEventCreate", true, kBroken, 1},
                                           Fault{"QueryForGood", "cuEventQuery", true, kBroken, 2},
                                           Fault{"InfoForGood", "cuMemGetInfo", true, kBroken, 2}),
                         [](const auto& info) { return std::string(info.param.label); });

}  // namespace
}  // namespace spillway::testing
