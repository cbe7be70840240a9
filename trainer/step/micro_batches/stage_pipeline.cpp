#include "trainer/step/micro_batches/stage_pipeline.h"

namespace spillway::trainer {

at::Tensor StagePipeline::run(uint32_t number, const Run& run) {
  while (next(number) < run.count && under_way_.size() < run.most) begin_one(next(number), run);
  at::Tensor loss = end_first(run);
  forget_starts(number);
  return loss;
}

void StagePipeline::begin_one(uint32_t number, const Run& run) {
  save(number);
  std::unique_ptr<MicroBatch> one = run.begin(number);
  one->forward();
  if (!stage_.is_last()) messages_.give_output(number, one->output());
  under_way_.push_back(std::move(one));
}

at::Tensor StagePipeline::end_first(const Run& run) {
  MicroBatch& one = *under_way_.front();
  const at::Tensor of_output = stage_.is_last() ? at::Tensor() : messages_.gradient(one.number(), one.rows());
  run.before_backward(one);
  one.backward(of_output);
  if (!stage_.is_first()) messages_.give_gradient(one.number(), one.input_gradient());
  messages_.done(one.number());
  at::Tensor loss = one.loss();
  under_way_.pop_front();
  return loss;
}

}  // namespace spillway::trainer
