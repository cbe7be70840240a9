// What holds the parameters, for whoever reads or writes it: wherever it lies, one tensor at a time.
#include "trainer/step/parameters.h"

namespace spillway::trainer {

std::vector<at::Tensor> Parameters::rows_of(size_t index, const Span& span) const {
  const Int8Weight* weight = int8(index);
  if (weight == nullptr) return {values_[index].detach().view({-1}).narrow(0, span.begin, span.length)};
  const int64_t columns = weight->codes.size(1), first = span.begin / columns, rows = span.length / columns;
  return {weight->codes.narrow(0, first, rows), weight->scales.narrow(0, first, rows)};
}

std::vector<const at::Tensor*> Parameters::tensors_of(size_t index) const {
  const Int8Weight* weight = int8(index);
  if (weight != nullptr) return {&weight->codes, &weight->scales};
  return {&values_[index]};
}

std::vector<Parameters::Stored> Parameters::stored(size_t index) const {
  const std::vector<const at::Tensor*> tensors = tensors_of(index);
  std::vector<Stored> all;
  all.reserve(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i)
    all.push_back({tensors.size() == 1 ? ""
                   : i == 0            ? ".codes"
                                       : ".scales",
                   tensors[i]->sizes().vec(), tensors[i]->scalar_type()});
  return all;
}

void Parameters::visit_stored(size_t index, size_t which, bool writes,
                              const std::function<void(const at::Tensor&)>& visit) const {
  const at::NoGradGuard no_grad;
  if (const auto& matrix = tiled_[index]) {
    MatrixBytes& bytes = *matrix->value();
    visit(bytes.read());
    if (writes) bytes.was_written();
    return;
  }
  visit_tensor(index, *tensors_of(index)[which], writes, visit);
}

void Parameters::visit_tensor(size_t index, const at::Tensor& tensor, bool writes,
                              const std::function<void(const at::Tensor&)>& visit) const {
  const at::NoGradGuard no_grad;
  const int unit = unit_of(index);
  if (unit < 0 || !streamed_values_.has(uint32_t(unit))) return visit(tensor.detach());
  LayerCache& cache = streamed_values_.cache_of(uint32_t(unit));
  cache.synchronise();
  if (writes) cache.forget();
  const LayerBlock& block = cache.block(uint32_t(unit));
  size_t part = 0;
  while (!block.tensor(part).is_same(tensor)) ++part;
  visit(block.view(block.home().read(nullptr), part));
  if (writes) block.home().written_by(nullptr);
}

at::Tensor Parameters::read_stored(size_t index, size_t which) {
  finish_update();
  at::Tensor values;
  visit_stored(index, which, false,
               [&](const at::Tensor& tensor) { values = tensor.is_cuda() ? tensor.cpu() : tensor.clone(); });
  return values;
}

void Parameters::write_stored(size_t index, size_t which, const at::Tensor& values) {
  finish_update();
  if (!is_shared(index))
    return visit_stored(index, which, true, [&](const at::Tensor& tensor) { copy_now(tensor, values); });
  const auto& [begin, length] = shares_.own[index];
  const at::Tensor own = values.view({-1}).narrow(0, begin, length);
  if (length > 0)
    visit_tensor(index, value_shares_[index], true, [&](const at::Tensor& share) { copy_now(share, own); });
  forget_gathered();
}

uint64_t Parameters::hash() {
  return hash([this](size_t index, size_t which) {
    return is_shared(index) ? read_share(index) : read_stored(index, which);
  });
}

uint64_t Parameters::hash(const ReadStored& read) const {
  uint64_t value = 0xcbf29ce484222325ull;
  for (size_t index = 0; index < size(); ++index) {
    for (size_t which = 0; which < stored(index).size(); ++which) {
      const at::Tensor host = read(index, which).contiguous();
      const auto* bytes = static_cast<const unsigned char*>(host.const_data_ptr());
      for (size_t i = 0; i < host.nbytes(); ++i) value = (value ^ bytes[i]) * 0x100000001b3ull;
    }
  }
  return value;
}

}  // namespace spillway::trainer
