#include "trainer/step/micro_batches/micro_batch.h"

#include <utility>

namespace spillway::trainer {

MicroBatch::MicroBatch(uint32_t number, const Model& model, const Weights& weights, const at::Tensor& rows,
                       const Plan& plan, double scale, bool in_pieces,
                       const std::shared_ptr<ActivationHost>& host, at::Tensor input)
    : number_(number),
      rows_(rows.size(0)),
      scale_(scale),
      has_head_(model.stage().is_last()),
      input_(std::move(input)),
      passage_(model.loss_in_pieces(weights, rows, plan, in_pieces ? &pieces_ : nullptr, host, input_)) {
  pieces_.start(passage_->start());
}

void MicroBatch::forward() {
  pieces_.resume();
  if (!passage_->done()) return;
  const at::Tensor sum = passage_->take();
  passage_.reset();
  if (!has_head_) return void(output_ = sum);
  scaled_ = sum * scale_;
  loss_ = sum.detach();
}

void MicroBatch::backward(const at::Tensor& of_output) {
  if (std::exchange(is_undoing_, true)) return pieces_.undo();
  if (!has_head_) return torch::autograd::backward({std::exchange(output_, {})}, {of_output});
  torch::autograd::backward({std::exchange(scaled_, {})});
}

}  // namespace spillway::trainer
