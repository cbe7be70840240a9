#include "trainer/model/model.h"

#include <ATen/CPUGeneratorImpl.h>

#include "trainer/model/families.h"

namespace spillway::trainer {

Model::Model(const Architecture& architecture)
    : architecture_(architecture), table_(parameter_table(architecture)), keys_(architecture) {}

std::vector<at::Tensor> Model::initial_parameters(uint64_t seed) const {
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  std::vector<at::Tensor> all;
  all.reserve(table_.size());
  for (const Parameter& parameter : table_) {
    at::Tensor values = at::full(parameter.sizes, parameter.mean, at::kFloat);
    if (parameter.deviation > 0) values.normal_(parameter.mean, parameter.deviation, generator);
    all.push_back(std::move(values));
  }
  return all;
}

at::Tensor Model::targets_of(const at::Tensor& rows) const {
  const int64_t targets = architecture_.target_tokens();
  return rows.narrow(1, rows.size(1) - targets, targets);
}

Head Model::head_of(const Forward& forward, const at::Tensor& rows) const {
  const at::Tensor tokens = rows.narrow(1, 0, architecture_.context);
  switch (architecture_.family) {
    case Family::kGpt2:
      return gpt2_head(forward, tokens);
    case Family::kLlama:
      return llama_head(forward, tokens);
    case Family::kT5:
      return t5_head(forward, tokens, targets_of(rows));
  }
  return {};
}

at::Tensor Model::loss_sum(const Weights& parameters, const at::Tensor& rows, const Plan& plan, bool training,
                           const std::shared_ptr<ActivationHost>& host) const {
  Forward forward{architecture_, keys_, parameters, plan, training};
  if (host != nullptr && !plan.offload.empty()) forward.activations = std::make_shared<ActivationPass>(host);
  return summed_loss(head_of(forward, rows), targets_of(rows), plan.head_chunks);
}

at::Tensor Model::row_losses(const Weights& parameters, const at::Tensor& rows, const Plan& plan) const {
  const at::NoGradGuard no_grad;
  return losses_by_row(head_of({architecture_, keys_, parameters, {}, false}, rows), targets_of(rows),
                       plan.head_chunks);
}

at::Tensor Model::logits(const Weights& parameters, const at::Tensor& rows) const {
  return head_of({architecture_, keys_, parameters, {}, false}, rows).logits();
}

}  // namespace spillway::trainer
