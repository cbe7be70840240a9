// The micro-batches of a step that are under way at the same time, so that devices do not wait in turn.
//
// Time goes in slots. In each, every micro-batch under way does its next piece, of its forward or of its
// backward, and then all of them hand over to the next device. At most one begins in a slot, so that each is
// in a piece of its own: while one computes on the second device, the next one computes on the first (one
// forward, one backward: Narayanan et al., "PipeDream", 2019; its flush at the end of a step is GPipe's). All
// is queued by one thread that waits for no device.
//
// The bits are those of one micro-batch after the other. Each has its pieces' backward after the one before
// it, so that gradients are accumulated in that order. And each draws the random numbers that it would draw
// then: how far a forward takes the generator is known from the first one of as many rows, which goes alone.
//
// Thread-safety: one thread. Ownership: the micro-batches under way. Errors: those of the pieces; `drop`
// then. std::logic_error where a forward drew another number of random numbers than the one before.
#pragma once
#include "trainer/step/micro_batches/schedule.h"

namespace spillway::trainer {

class Pipeline : public MicroBatchSchedule {
 public:
  // `draws`: whether a forward draws random numbers.
  Pipeline(std::vector<at::Device> random, bool draws)
      : MicroBatchSchedule(std::move(random)), draws_(draws) {}

  void drop() override;
  void placement_changed() override { distances_.clear(); }
  at::Tensor run(uint32_t number, const Run& run) override;

 private:
  void admit(uint32_t number, const Run& run);
  bool knows_start(uint32_t number);
  void advance(MicroBatch& one, const Run& run);
  void forward(MicroBatch& one);
  void note_end(const MicroBatch& one);

  const bool draws_;
  Randoms now_;                            // of the forwards under way
  std::map<int64_t, uint64_t> distances_;  // of the generator, by a forward's rows
};

}  // namespace spillway::trainer
