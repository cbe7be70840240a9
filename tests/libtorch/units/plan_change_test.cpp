// A C++ program on Spillway's allocator: what it catches when memory runs out, in its own thread and in
// backward.
#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "spillway/libtorch/allocator.h"
#include "spillway/spillway.h"

namespace c10 {

// Lets go of a tensor, as LibTorch's own callback lets go of what other processes are done with.
static std::optional<at::Tensor> kept_for_others;
class LetGo : public FreeMemoryCallback {
 public:
  bool Execute() override {
    const bool had = kept_for_others.has_value();
    kept_for_others.reset();
    return had;
  }
};
REGISTER_FREE_MEMORY_CALLBACK("spillway_test", LetGo)

// Asks for a block itself, which no callback should.
static bool asks = false;
static int asked = 0;
class Asks : public FreeMemoryCallback {
 public:
  bool Execute() override {
    if (asks && ++asked < 1000)
      cuda::CUDACachingAllocator::raw_delete(cuda::CUDACachingAllocator::raw_alloc(1 << 30));
    return false;
  }
};
REGISTER_FREE_MEMORY_CALLBACK("spillway_test_asks", Asks)

}  // namespace c10

namespace {

using c10::asked;
using c10::asks;
using c10::kept_for_others;
using spillway::libtorch::PlanChange;

constexpr int64_t kMiB = int64_t{1} << 20;

at::Tensor bytes(int64_t count) {
  return at::ones({count}, at::TensorOptions().dtype(at::kByte).device(at::kCUDA));
}

spillway_offer offer_half(void*, const spillway_oom* oom) {
  return {oom->requested_bytes / 2, 100};
}
uint64_t mark_chosen(void* chosen, const spillway_oom*) {
  *static_cast<bool*>(chosen) = true;
  return 0;
}

// A plan move, registered while it lives.
class Move {
 public:
  Move() {
    spillway_strategy strategy{};
    strategy.size = sizeof strategy;
    strategy.name = "halve the batch";
    strategy.guarantee = SPILLWAY_NUMERICALLY_EQUAL;
    strategy.needs = SPILLWAY_NEEDS_UNWINDING;
    strategy.offer = &offer_half;
    strategy.relieve = &mark_chosen;
    strategy.context = &chosen;
    EXPECT_EQ(spillway_register(&strategy, &id), SPILLWAY_OK) << spillway_last_error();
  }
  ~Move() { spillway_unregister(id); }
  Move(const Move&) = delete;
  Move& operator=(const Move&) = delete;

  bool chosen = false;
  spillway_strategy_id id = 0;
};

class Limit {
 public:
  explicit Limit(uint64_t bytes) { EXPECT_EQ(spillway_limit(0, bytes), SPILLWAY_OK); }
  ~Limit() { spillway_limit(0, 0); }
  Limit(const Limit&) = delete;
  Limit& operator=(const Limit&) = delete;
};

class SpillwayAllocator : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(spillway_torch_install(), 0) << spillway_torch_error(); }
};

TEST_F(SpillwayAllocator, IsWhatThisProgramSees) {
  EXPECT_EQ(c10::cuda::CUDACachingAllocator::get()->name(), "spillway");
  EXPECT_STREQ(spillway_torch_error(), "");
}

TEST_F(SpillwayAllocator, OutOfMemoryIsPyTorchsOwnErrorWithALineOfSpillways) {
  try {
    bytes(1 << 30);
    FAIL() << "1 GiB was served on a card of 512 MiB";
  } catch (const PlanChange&) {
    FAIL() << "a plan change without a plan move";
  } catch (const c10::OutOfMemoryError& error) {
    const std::string text = error.what_without_backtrace();
    EXPECT_EQ(
        text.rfind("CUDA out of memory. Tried to allocate 1024.00 MiB. GPU 0 has a total capacity of 512.00",
                   0),
        0u)
        << text;
    EXPECT_NE(text.find("\nSpillway: "), std::string::npos) << text;
  }
}

TEST_F(SpillwayAllocator, PlanChangeTellsIncidentAndMove) {
  Move move;
  try {
    bytes(1 << 30);
    FAIL();
  } catch (const PlanChange& change) {
    EXPECT_TRUE(move.chosen);
    EXPECT_EQ(change.move(), move.id);
    uint64_t incident = 0;
    EXPECT_EQ(spillway_chosen_move(&incident), move.id);
    EXPECT_EQ(change.incident(), incident);
  }
  EXPECT_EQ(bytes(kMiB).sum().item<int64_t>(), kMiB);
}

TEST_F(SpillwayAllocator, LetsGoOfWhatIsKeptForOthersBeforeAPlanMoveIsChosen) {
  bytes(kMiB);  // the device is in use
  const Limit limit(96 << 20);
  const Move move;
  kept_for_others = bytes(64 * kMiB);
  const at::Tensor needed = bytes(64 * kMiB);
  EXPECT_FALSE(kept_for_others.has_value());
  EXPECT_FALSE(move.chosen);
  EXPECT_EQ(spillway_chosen_move(nullptr), 0u) << "no plan move is left behind for a later failure";
}

TEST_F(SpillwayAllocator, ACallbackThatAsksForMemoryItselfIsNotCalledForThat) {
  asks = true;
  EXPECT_THROW(bytes(1 << 30), c10::OutOfMemoryError);
  asks = false;
  EXPECT_EQ(asked, 1);
}

TEST_F(SpillwayAllocator, CodeThatKnowsOnlyPyTorchCatchesAPlanChange) {
  const Move move;
  EXPECT_THROW(bytes(1 << 30), c10::OutOfMemoryError);
}

// The failing request is made by an autograd thread; its exception arrives here with its type.
TEST_F(SpillwayAllocator, PlanChangeComesOutOfBackward) {
  const Move move;
  at::Tensor weight = at::full({16 * kMiB}, 2.0, at::TensorOptions().device(at::kCUDA)).requires_grad_();
  const at::Tensor loss = weight.mul(weight).sum();
  spillway_memory memory{};
  memory.size = sizeof memory;
  ASSERT_EQ(spillway_query(0, &memory), SPILLWAY_OK);
  {
    const Limit limit(memory.live + 32 * kMiB);
    try {
      loss.backward({}, /*retain_graph=*/true);
      FAIL() << "backward fitted";
    } catch (const PlanChange& change) {
      EXPECT_EQ(change.move(), move.id);
    }
  }
  weight.mutable_grad() = at::Tensor();
  loss.backward();
  EXPECT_EQ(weight.grad()[0].item<float>(), 4.0f);
}

TEST_F(SpillwayAllocator, ThreadsAllocateAndFreeEachOthersBlocks) {
  std::vector<std::thread> threads;
  std::vector<at::Tensor> made(8);
  std::vector<std::string> errors(8);
  for (size_t t = 0; t < made.size(); ++t) {
    threads.emplace_back([&made, &errors, t] {
      try {
        for (int i = 1; i < 200; ++i) made[t] = bytes(i * 512);
      } catch (const std::exception& error) {
        errors[t] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(errors, std::vector<std::string>(8));
  made.clear();
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(0);
  EXPECT_EQ(stats.allocated_bytes[0].current, 0);
  EXPECT_EQ(stats.allocation[0].current, 0);
  EXPECT_GE(stats.allocation[0].allocated, 8 * 199);
}

TEST_F(SpillwayAllocator, RequestsOfNothingAndUnknownPointersAreHarmless) {
  auto* allocator = c10::cuda::CUDACachingAllocator::get();
  EXPECT_EQ(allocator->raw_alloc(0), nullptr);
  allocator->raw_delete(nullptr);
  const c10::DataPtr nothing = allocator->allocate(0);
  EXPECT_EQ(nothing.get(), nullptr);
  EXPECT_TRUE(nothing.device().is_cuda());
  void* address = allocator->raw_alloc(100);
  EXPECT_EQ(allocator->raw_deleter(), allocator->allocate(1).get_deleter());
  allocator->raw_delete(address);
}

TEST_F(SpillwayAllocator, PoolsCountTheirUsers) {
  auto* allocator = c10::cuda::CUDACachingAllocator::get();
  const c10::cuda::MempoolId_t pool{0, 1};
  EXPECT_EQ(allocator->getPoolUseCount(0, pool), 0);
  allocator->createOrIncrefPool(0, pool);
  allocator->beginAllocateToPool(0, pool, [](cudaStream_t) { return true; });
  EXPECT_EQ(allocator->getPoolUseCount(0, pool), 2);
  EXPECT_THROW(allocator->beginAllocateToPool(0, pool, [](cudaStream_t) { return true; }), c10::Error);
  void* block = allocator->raw_alloc(1 << 20);
  EXPECT_TRUE(allocator->checkPoolLiveAllocations(0, pool, {block}));
  EXPECT_FALSE(allocator->checkPoolLiveAllocations(0, pool, {}));
  allocator->endAllocateToPool(0, pool);
  EXPECT_THROW(allocator->endAllocateToPool(0, pool), c10::Error);
  void* other = allocator->raw_alloc(1 << 20);
  EXPECT_TRUE(allocator->checkPoolLiveAllocations(0, pool, {block})) << "later requests go elsewhere";
  allocator->raw_delete(other);
  allocator->raw_delete(block);
  EXPECT_EQ(allocator->snapshot(pool).segments.size(), 1u);
  // In the order of ~MemPool.
  EXPECT_NO_THROW(allocator->setUseOnOOM(0, pool, false));
  EXPECT_NO_THROW(allocator->releasePool(0, pool));
  EXPECT_NO_THROW(allocator->releasePool(0, pool));
  EXPECT_NO_THROW(allocator->emptyCache(pool));
  EXPECT_EQ(allocator->snapshot(pool).segments.size(), 0u);
  EXPECT_EQ(allocator->getPoolUseCount(0, pool), 0);
  EXPECT_THROW(allocator->releasePool(0, pool), c10::Error);
  EXPECT_FALSE(allocator->isHistoryEnabled());
}

}  // namespace
