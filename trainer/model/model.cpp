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

at::Tensor Model::logits_of(const Forward& forward, const at::Tensor& rows) const {
  const at::Tensor tokens = rows.narrow(1, 0, architecture_.context);
  switch (architecture_.family) {
    case Family::kGpt2:
      return gpt2_logits(forward, tokens);
    case Family::kLlama:
      return llama_logits(forward, tokens);
    case Family::kT5:
      return t5_logits(forward, tokens, targets_of(rows));
  }
  return {};
}

at::Tensor Model::loss_sum(at::TensorList parameters, const at::Tensor& rows,
                           const std::set<uint32_t>& recompute, bool training) const {
  const at::Tensor logits = logits_of({architecture_, keys_, parameters, recompute, training}, rows);
  return at::cross_entropy_loss(logits.flatten(0, 1).to(at::kFloat), targets_of(rows).reshape(-1), {},
                                at::Reduction::Sum);
}

at::Tensor Model::row_losses(at::TensorList parameters, const at::Tensor& rows) const {
  const at::NoGradGuard no_grad;
  const at::Tensor all = logits(parameters, rows);
  return at::cross_entropy_loss(all.flatten(0, 1).to(at::kFloat), targets_of(rows).reshape(-1), {},
                                at::Reduction::None)
      .view({rows.size(0), -1})
      .sum(1);
}

at::Tensor Model::logits(at::TensorList parameters, const at::Tensor& rows) const {
  return logits_of({architecture_, keys_, parameters, {}, false}, rows);
}

}  // namespace spillway::trainer
