#include "trainer/model/model.h"

#include <ATen/CPUGeneratorImpl.h>

#include <memory>

#include "trainer/model/families.h"

namespace spillway::trainer {
namespace {

// One stream of random numbers for all parameters, in their order.
class DrawnValues {
 public:
  DrawnValues(std::vector<Parameter> table, uint64_t seed) : table_(std::move(table)), seed_(seed) {}

  at::Tensor at(size_t index) {
    if (index < next_ || !generator_.defined()) {
      generator_ = at::make_generator<at::CPUGeneratorImpl>(seed_);
      next_ = 0;
    }
    at::Tensor values;
    while (next_ <= index) values = draw(table_[next_++]);
    return values;
  }

 private:
  at::Tensor draw(const Parameter& parameter) {
    at::Tensor values = at::full(parameter.sizes, parameter.mean, at::kFloat);
    if (parameter.deviation > 0) values.normal_(parameter.mean, parameter.deviation, generator_);
    return values;
  }

  const std::vector<Parameter> table_;
  const uint64_t seed_;
  at::Generator generator_;
  size_t next_ = 0;
};

}  // namespace

Model::Model(const Architecture& architecture, const Stage& stage)
    : architecture_(architecture),
      stage_(stage),
      table_(parameter_table(architecture, stage)),
      keys_(architecture) {}

InitialValues Model::initial_values(uint64_t seed) const {
  const auto drawn = std::make_shared<DrawnValues>(parameter_table(architecture_), seed);
  return {table_.size(), [drawn](size_t index) { return drawn->at(index); }};
}

std::vector<at::Tensor> Model::initial_parameters(uint64_t seed) const {
  const InitialValues values = initial_values(seed);
  std::vector<at::Tensor> all;
  all.reserve(values.size());
  for (size_t i = 0; i < values.size(); ++i) all.push_back(values[i]);
  return all;
}

at::Tensor Model::targets_of(const at::Tensor& rows) const {
  const int64_t targets = architecture_.target_tokens();
  return rows.narrow(1, rows.size(1) - targets, targets);
}

Passage<Head> Model::head_of(const Forward& forward, const at::Tensor& rows) const {
  const at::Tensor tokens = rows.narrow(1, 0, architecture_.context);
  switch (architecture_.family) {
    case Family::kGpt2:
      return gpt2_head(forward, tokens);
    case Family::kLlama:
      return llama_head(forward, tokens);
    case Family::kT5:
      break;
  }
  return t5_head(forward, tokens, targets_of(rows));
}

Forward Model::forward_of(const Weights& parameters, const Plan& plan, bool training,
                          const std::shared_ptr<ActivationHost>& host) const {
  Forward forward{architecture_, keys_, parameters, plan, training};
  forward.stage = stage_;
  if (host != nullptr && !plan.offload.empty()) forward.activations = std::make_shared<ActivationPass>(host);
  return forward;
}

Passage<at::Tensor> Model::loss_of(Forward forward, at::Tensor rows) const {
  const Head head = co_await head_of(forward, rows);
  if (!stage_.is_last()) co_return at::Tensor(head.hidden);
  co_return summed_loss(head, targets_of(rows), forward.plan.head_chunks);
}

Passage<at::Tensor> Model::loss_in_pieces(const Weights& parameters, at::Tensor rows, const Plan& plan,
                                          Pieces* pieces, const std::shared_ptr<ActivationHost>& host,
                                          at::Tensor input) const {
  Forward forward = forward_of(parameters, plan, true, host);
  forward.pieces = pieces;
  forward.input = std::move(input);
  return loss_of(std::move(forward), std::move(rows));
}

at::Tensor Model::loss_sum(const Weights& parameters, const at::Tensor& rows, const Plan& plan, bool training,
                           const std::shared_ptr<ActivationHost>& host) const {
  return loss_of(forward_of(parameters, plan, training, host), rows).finish();
}

at::Tensor Model::row_losses(const Weights& parameters, const at::Tensor& rows, const Plan& plan,
                             const at::Tensor& input) const {
  const at::NoGradGuard no_grad;
  const Plan nothing_again;
  Forward forward{architecture_, keys_, parameters, nothing_again};
  forward.stage = stage_;
  forward.input = input;
  const Head head = head_of(forward, rows).finish();
  return stage_.is_last() ? losses_by_row(head, targets_of(rows), plan.head_chunks) : head.hidden;
}

at::Tensor Model::logits(const Weights& parameters, const at::Tensor& rows) const {
  const Plan nothing_again;
  const Forward forward{architecture_, keys_, parameters, nothing_again};
  return head_of(forward, rows).finish().logits();
}

}  // namespace spillway::trainer
