// In computing mode: handles that are partly in use are divided, with every byte where it was, and blocks
// that share handles can go to the host.
#include <chrono>
#include <functional>
#include <future>
#include <utility>

#include "strategies/ladder/ladder.h"
#include "tests/sanitized.h"
#include "tests/strategies/tiers/open_gate.h"
#include "tests/strategies/tiers/values.h"

namespace spillway::testing {
namespace {

class DividedHandles : public Values {
 protected:
  DividedHandles() { handle_rule = {.most_bytes = 16 * kMiB, .share = 2}; }
  void SetUp() override {
    Values::SetUp();
    with_strategies(true);
  }
  void TearDown() override {
    allocator->set_handler(nullptr);
    Values::TearDown();
  }
  void with_strategies(bool divides) {
    ladder_ = std::make_unique<Ladder>(*allocator);
    ladder_->add(make_stitch());
    if (divides) ladder_->add(make_divide_handles());
    ladder_->set_gate(&gate_);
    allocator->set_handler(ladder_.get());
  }
  // Blocks of 4 MiB on handles of 16; every other one is freed. 64 MiB in all, 32 of them idle, none a whole
  // handle.
  std::vector<uint64_t> fill_and_free_every_other() {
    std::vector<uint64_t> large, small, left;
    for (int i = 0; i < 4; ++i) large.push_back(get(16 * kMiB));
    for (const uint64_t block : large) put(block);
    for (int i = 0; i < 16; ++i) {
      small.push_back(get(4 * kMiB));
      fill(small.back(), 4 * kMiB, static_cast<unsigned char>(i + 1));
    }
    EXPECT_EQ(memory().reserved, 64 * kMiB);
    allocator->limit(kDevice, 64 * kMiB);
    for (size_t i = 0; i < small.size(); ++i)
      if (i % 2 == 0)
        put(small[i]);
      else
        left.push_back(small[i]);
    EXPECT_EQ(memory().stranded, 32 * kMiB);
    return left;
  }
  void expect_contents(const std::vector<uint64_t>& left) {
    for (size_t i = 0; i < left.size(); ++i)
      EXPECT_TRUE(holds(left[i], 4 * kMiB, static_cast<unsigned char>(2 * i + 2))) << i;
  }

  OneThreadsGate gate_;
  std::unique_ptr<Ladder> ladder_;
};

TEST_F(DividedHandles, GiveTheirIdlePagesToALargeRequest) {
  const std::vector<uint64_t> left = fill_and_free_every_other();
  with_strategies(false);
  EXPECT_EQ(get(24 * kMiB), 0u) << "whole handles have none";
  with_strategies(true);
  allocator->limit(kDevice, 80 * kMiB);  // with room for one handle's pages
  const uint64_t large = get(40 * kMiB);
  ASSERT_NE(large, 0u) << failure->text;
  fill(large, 40 * kMiB, 0xEE);
  expect_contents(left);
  EXPECT_TRUE(holds(large, 40 * kMiB, 0xEE));
  put(large);
  for (const uint64_t block : left) put(block);
}

TEST_F(DividedHandles, StayWhereOtherProcessesMayMapThem) {
  const std::vector<uint64_t> left = fill_and_free_every_other();
  std::string why;
  for (const uint64_t block : left) {
    SharedBlock shared;
    ASSERT_EQ(allocator->share(block, &shared, &why), Status::kOk) << why;
  }
  allocator->limit(kDevice, 80 * kMiB);
  EXPECT_EQ(get(40 * kMiB), 0u);
  expect_contents(left);
  for (const uint64_t block : left) put(block);
}

TEST_F(DividedHandles, LetTheBlocksOnThemGoToTheHost) {
  ladder_->add(
      make_spill_to_host(*allocator, {.host_bytes = 64 * kMiB, .available = nullptr, .most_slowdown = 0}));
  const std::vector<uint64_t> left = fill_and_free_every_other();
  allocator->limit(kDevice, 80 * kMiB);
  let_time_pass();
  const uint64_t large = get(64 * kMiB);
  ASSERT_NE(large, 0u) << failure->text;
  fill(large, 64 * kMiB, 0xEE);
  EXPECT_GT(memory().spilled, 0u);
  expect_contents(left);
  put(large);
  for (const uint64_t block : left) put(block);
}

// Another thread shares the blocks on a handle while that is divided: it waits, and shares the new pages.
TEST_F(DividedHandles, AreNotSharedWhileTheyAreDivided) {
  static driver::Table interrupted = table;
  static std::function<void()> between;
  interrupted.cuMemcpyAsync = [](auto... arguments) {
    if (between) std::exchange(between, nullptr)();
    return simulated_table().cuMemcpyAsync(arguments...);
  };
  allocator = std::make_unique<Allocator>(interrupted);
  allocator->set_handle_rule(handle_rule);
  with_strategies(true);
  const std::vector<uint64_t> left = fill_and_free_every_other();
  allocator->limit(kDevice, 80 * kMiB);
  std::future<void> sharing;
  between = [&] {
    sharing = std::async(std::launch::async, [&] {
      for (const uint64_t block : left) {
        SharedBlock shared;
        std::string why;
        EXPECT_EQ(allocator->share(block, &shared, &why), Status::kOk) << why;
      }
    });
    sharing.wait_for(std::chrono::milliseconds(300));
  };
  uint64_t large = 0;
  allocator->allocate(kDevice, {40 * kMiB, {}, 0}, &large, nullptr);
  ASSERT_TRUE(sharing.valid()) << "nothing was divided";
  sharing.wait();
  check();
  expect_contents(left);
  for (const uint64_t block : left) put(block);
  if (large != 0) put(large);
}

// A driver that fails at any call leaves the handle whole and every byte where it was.
TEST_F(DividedHandles, StayWholeWhereTheDriverFails) {
  for (const char* function :
       {"cuMemCreate", "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess", "cuMemUnmap"}) {
    for (uint64_t n = 1; n <= 9; n += 2 * kNextFailing) {
      const std::vector<uint64_t> left = fill_and_free_every_other();
      allocator->limit(kDevice, 80 * kMiB);
      control->fail_call(n, function, 0, CUDA_ERROR_UNKNOWN);
      const uint64_t large = get(40 * kMiB);
      control->fail_call(0, nullptr, 0, CUDA_SUCCESS);
      expect_contents(left);
      if (large != 0) put(large);
      for (const uint64_t block : left) put(block);
      allocator->limit(kDevice, 0);
      allocator->empty_cache(kDevice);
      if (HasFailure()) FAIL() << "call " << n << " of " << function;
    }
  }
}

}  // namespace
}  // namespace spillway::testing
