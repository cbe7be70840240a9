// Weights that come from other ranks beside what is computed: who reads them waits, and nobody else.
#include <c10/core/Event.h>
#include <c10/cuda/CUDAStream.h>

#include "tests/trainer/ranks/over_threads.h"
#include "tests/trainer/simulated.h"

namespace spillway::trainer {
namespace {

constexpr uint64_t kLate = 1'000'000'000;  // virtual ns

class LateWeights : public Simulated {
 protected:
  LateWeights() : fixture_(config_, corpus_, devices_) {
    EXPECT_EQ(fixture_.step.run(0), StepOutcome::kDone);
    fixture_.program.save_step();
    wait_for_device();
  }

  static void be_late(const c10::cuda::CUDAStream& stream) {
    EXPECT_EQ(simulator().submit(CUstream(stream.stream()), "late", nullptr, 0, kLate, nullptr, nullptr),
              CUDA_SUCCESS);
  }
  // Behind work on another stream.
  static CopyStream::Mark late() {
    const c10::cuda::CUDAStream stream = c10::cuda::getStreamFromPool();
    be_late(stream);
    auto mark = std::make_shared<c10::Event>(at::kCUDA);
    mark->record(stream);
    return mark;
  }
  static void wait_for_device() { c10::cuda::getCurrentCUDAStream().synchronize(); }

  // Virtual nanoseconds, with all that it queues on the current stream.
  template <typename Work>
  static uint64_t taken(const Work& work) {
    const uint64_t before = counts().virtual_ns;
    work();
    wait_for_device();
    return counts().virtual_ns - before;
  }
  void run_micro_batch(uint32_t number) {
    fixture_.program.save_micro_batch(number);
    EXPECT_FALSE(fixture_.program.run_micro_batch(number, config_.plan));
  }

  Fixture fixture_;
  Parameters& parameters_ = fixture_.program.parameters();
};

TEST_F(LateWeights, AForwardWaitsForEachUnit) {
  for (const int unit : {-1, 0, 3}) {
    ASSERT_TRUE(parameters_.stays_on_device(unit));
    parameters_.become_whole(unit, late());
    EXPECT_GE(taken([&] { run_micro_batch(0); }), kLate) << unit;
    EXPECT_LT(taken([&] { run_micro_batch(1); }), kLate) << "they have come";
    fixture_.program.restore_step();
  }
}

TEST_F(LateWeights, WhatReadsThemWaits) {
  const uint64_t hash = parameters_.hash();
  parameters_.become_whole(1, late());
  EXPECT_GE(taken([&] { EXPECT_EQ(parameters_.hash(), hash); }), kLate);
  parameters_.become_whole(1, late());
  EXPECT_GE(taken([&] { parameters_.leave_devices(Place::kHost, Place::kDevice, {}); }), kLate);
  EXPECT_FALSE(parameters_.stays_on_device(1));
}

// Gradients of the next step are cleared, and its batch comes.
TEST_F(LateWeights, AStepBeginsWithoutThem) {
  parameters_.become_whole(0, late());
  EXPECT_LT(taken([&] { fixture_.program.save_step(); }), kLate);
}

// For an update on the host, which no stream waits for.
TEST_F(LateWeights, BytesAtHomeAreTakenWhenNoCopyReadsOrWritesThem) {
  const at::Device card = devices_[0];
  LayerCache cache(card, 2);
  const LayerBlock::Part part{{64}, at::kFloat};
  cache.add(0, {{part}, card, [&](int64_t bytes) { return home_in_memory(bytes, card, at::kCPU); }}, false);
  cache.reserve();
  const auto use = [&](LayerCache::Use how) {
    cache.begin(0, how);
    cache.end(0, LayerCache::After::kKept);
  };
  const auto take = [&] { return taken([&] { cache.take_home(0); }); };
  use(LayerCache::Use::kRead);
  wait_for_device();
  EXPECT_LT(take(), kLate / 10);
  CopyStream::of(card, Direction::kToDevice).wait_for(late());
  cache.follow({0});  // it comes late
  EXPECT_GE(take(), kLate * 9 / 10);
  use(LayerCache::Use::kRead);
  wait_for_device();
  CopyStream::of(card, Direction::kToHost).wait_for(late());
  use(LayerCache::Use::kWrite);
  EXPECT_GE(take(), kLate * 9 / 10);
}

TEST_F(LateWeights, AnExchangeRunsBehindWhatWasQueuedAndIsWaitedForWhereItIsJoined) {
  on_ranks(2, [&](const std::shared_ptr<Ranks>& ranks) {
    if (!ranks->leads()) return;
    const Partition partition({}, {plain_parameter(-1, {4096})}, 2, 4096);
    Exchange exchange(*ranks, partition, devices_[0], at::kFloat);
    ASSERT_TRUE(exchange.runs_beside());
    const auto current = [] { return c10::cuda::getCurrentCUDAStream(); };
    be_late(current());
    const uint64_t before = counts().virtual_ns;
    exchange.beside([] {})->synchronize();  // and not the current stream
    EXPECT_GE(counts().virtual_ns - before, kLate * 9 / 10);
    exchange.beside([&] { be_late(current()); });
    EXPECT_LT(taken([] {}), kLate / 10) << "it is beside";
    EXPECT_GE(taken([&] { exchange.join(); }), kLate * 9 / 10);
  });
}

}  // namespace
}  // namespace spillway::trainer
