// The micro-batches of a step on a stage of a pipeline over ranks: one forward, one backward (Narayanan et
// al., "PipeDream: Generalized Pipeline Parallelism for DNN Training", 2019), with a flush at the end of the
// step.
//
// A stage begins as many micro-batches as may be under way in it, and then one more whenever the backward of
// the first one is done. Each has its forward and its backward in the order of the numbers, so that gradients
// are accumulated and random numbers are drawn as without stages.
//
// Thread-safety: one thread. Ownership: the micro-batches under way; borrows the messages. Errors: those of
// the micro-batches and of the messages; `drop` then.
#pragma once
#include "trainer/step/micro_batches/schedule.h"
#include "trainer/step/micro_batches/stage_messages.h"

namespace spillway::trainer {

class StagePipeline : public MicroBatchSchedule {
 public:
  StagePipeline(std::vector<at::Device> random, const Stage& stage, StageMessages& messages)
      : MicroBatchSchedule(std::move(random)), stage_(stage), messages_(messages) {}

  // The loss is not defined where the stage has no head.
  at::Tensor run(uint32_t number, const Run& run) override;

 private:
  void begin_one(uint32_t number, const Run& run);
  at::Tensor end_first(const Run& run);

  const Stage stage_;
  StageMessages& messages_;
};

}  // namespace spillway::trainer
