#include "trainer/step/micro_batch.h"

#include <utility>

namespace spillway::trainer {

MicroBatch::MicroBatch(uint32_t number, const Model& model, const Weights& weights, const at::Tensor& rows,
                       const Plan& plan, double scale, bool in_pieces,
                       const std::shared_ptr<ActivationHost>& host)
    : number_(number),
      rows_(rows.size(0)),
      scale_(scale),
      passage_(model.loss_in_pieces(weights, rows, plan, in_pieces ? &pieces_ : nullptr, host)) {
  pieces_.start(passage_->start());
}

void MicroBatch::forward() {
  pieces_.resume();
  if (!passage_->done()) return;
  const at::Tensor sum = passage_->take();
  passage_.reset();
  scaled_ = sum * scale_;
  loss_ = sum.detach();
}

void MicroBatch::backward() {
  if (std::exchange(is_undoing_, true)) return pieces_.undo();
  torch::autograd::backward({std::exchange(scaled_, {})});
}

}  // namespace spillway::trainer
