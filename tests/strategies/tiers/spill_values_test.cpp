// In computing mode: bytes that were moved to host memory are there, at their address, and back again.
#include "tests/sanitized.h"
#include "tests/strategies/tiers/values.h"

#include "allocator/tiers/tiers.h"
#include "strategies/ladder/ladder.h"
#include "tests/strategies/tiers/open_gate.h"
#include "tests/strategies/tiers/tiers_contents.h"

namespace spillway::testing {
namespace {

class SpilledValues : public Values {
 protected:
  void SetUp() override {
    Values::SetUp();
    start(32 * kMiB);
  }
  void start(uint64_t limit_bytes) {
    restart();
    ladder = std::make_unique<Ladder>(*allocator);
    ladder->add(
        make_spill_to_host(*allocator, {.host_bytes = 64 * kMiB, .available = nullptr, .most_slowdown = 0}));
    ladder->set_gate(&gate);
    allocator->set_handler(ladder.get());
    allocator->limit(kDevice, limit_bytes);
  }
  OneThreadsGate gate;
  std::unique_ptr<Ladder> ladder;
};

TEST_F(SpilledValues, ComeThroughAndStayWritable) {
  constexpr uint64_t kBytes = 7 * kMiB + 512;
  std::vector<uint64_t> blocks;
  for (int i = 0; i < 4; ++i) {
    blocks.push_back(get(kBytes));
    fill(blocks.back(), kBytes, static_cast<unsigned char>(i + 1));
  }
  let_time_pass();
  const uint64_t more = get(10 * kMiB);
  ASSERT_NE(more, 0u) << failure->text;
  fill(more, 10 * kMiB, 0xEE);
  EXPECT_GT(memory().spilled, 0u);
  for (size_t i = 0; i < blocks.size(); ++i)
    EXPECT_TRUE(holds(blocks[i], kBytes, static_cast<unsigned char>(i + 1))) << i;
  for (size_t i = 0; i < blocks.size(); ++i) fill(blocks[i], kBytes, static_cast<unsigned char>(i + 11));
  put(more);
  let_time_pass(25'000);
  EXPECT_GT(returnable_bytes(*allocator, kDevice), 0u);
  EXPECT_GT(unspill(*allocator, kDevice), 0u);
  check();
  EXPECT_EQ(memory().spilled, 0u);
  for (size_t i = 0; i < blocks.size(); ++i)
    EXPECT_TRUE(holds(blocks[i], kBytes, static_cast<unsigned char>(i + 11))) << i;
  for (const uint64_t block : blocks) put(block);
}

// Blocks of a chunk and two pages.
class SpilledChunks : public SpilledValues, public ::testing::WithParamInterface<const char*> {
 protected:
  static constexpr uint64_t kBytes = 36 * kMiB, kLimit = 2 * kBytes + kPage;

  // Fails the n-th call during `work`, and says whether there were so many.
  template <class Work>
  bool with_failure(uint64_t n, Work work) {
    const uint64_t before = counts().injected_failures;
    control->fail_call(n, GetParam(), 0, CUDA_ERROR_OUT_OF_MEMORY);
    work();
    control->fail_call(0, nullptr, 0, CUDA_SUCCESS);
    check();
    return counts().injected_failures != before;
  }
  void expect_values(const std::vector<uint64_t>& blocks) {
    for (size_t i = 0; i < blocks.size(); ++i)
      EXPECT_EQ(contents().compare(blocks[i], kBytes, i + 1), "") << i;
  }
  std::vector<uint64_t> two_blocks() {
    start(kLimit);
    std::vector<uint64_t> blocks;
    for (int i = 0; i < 2; ++i) {
      blocks.push_back(get(kBytes));
      contents().write(blocks.back(), kBytes, blocks.size());
    }
    let_time_pass();
    return blocks;
  }
  void unspill_all() {
    allocator->limit(kDevice, 4 * kLimit);
    for (int i = 0; i < 10 && returnable_bytes(*allocator, kDevice) == 0; ++i) let_time_pass(5'000);
    while (unspill(*allocator, kDevice) != 0) {
    }
  }
  // The offset is known once the driver has started.
  tiers::Contents contents() const { return tiers::Contents(control->alias_offset()); }
};

// Of the way there and of the way back, once at each call: a block has its bytes, wherever it lies.
TEST_P(SpilledChunks, KeepTheirBytesWhateverCallFails) {
  bool fired = true;
  for (uint64_t n = 1; fired; n += kNextFailing) {
    ASSERT_LT(n, 200u);
    const auto blocks = two_blocks();
    uint64_t more = 0;
    fired = with_failure(n, [&] { more = get(kBytes); });
    expect_values(blocks);
    if (more != 0) put(more);
    fired = with_failure(n, [&] { unspill_all(); }) || fired;
    expect_values(blocks);
    unspill_all();
    EXPECT_EQ(memory().spilled, 0u);
    expect_values(blocks);
    if (HasFailure()) FAIL() << "at call " << n;
  }
}

INSTANTIATE_TEST_SUITE_P(AtEach, SpilledChunks,
                         ::testing::Values("cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap",
                                           "cuMemcpyAsync", "cuEventSynchronize"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace spillway::testing
