#include "trainer/step/parameters.h"

#include <set>
#include <stdexcept>

namespace spillway::trainer {
namespace {

// Runs an empty backward on `device`'s autograd thread, which therefore has finished what it was at. Nothing
// is allocated: the tensors have no elements.
void wait_for_autograd_thread(at::Device device) {
  const at::AutoGradMode record(true);
  const at::Tensor leaf = at::empty({0}, at::TensorOptions().device(device)).requires_grad_(true);
  const at::Tensor output = leaf.view({0, 1});
  torch::autograd::grad({output}, {leaf}, {output.detach()});
}

at::ScalarType weight_type(Precision precision) {
  switch (precision) {
    case Precision::kFloat32:
    case Precision::kTf32:
      return at::kFloat;
    case Precision::kBf16Mixed:
    case Precision::kBf16:
    case Precision::kInt8:
      return at::kBFloat16;
    case Precision::kFp16Mixed:
      return at::kHalf;
  }
  return at::kFloat;
}

Int8Weight moved_to(at::Device device, const Int8Weight& weight) {
  return weight.defined() ? Int8Weight{weight.codes.to(device), weight.scales.to(device)} : weight;
}

}  // namespace

class Parameters::Hook : public torch::autograd::PostAccumulateGradHook {
 public:
  Hook(Parameters& owner, size_t index) : owner_(owner), index_(index) {}
  void operator()(const at::Tensor&) override { owner_.accumulate(index_); }

 private:
  Parameters& owner_;
  const size_t index_;
};

Parameters::Parameters(std::vector<std::string> names, const InitialValues& initial,
                       const std::vector<at::Device>& devices, const Numerics& numerics,
                       const std::vector<bool>& in_8_bits)
    : names_(std::move(names)), int8_(initial.size()), accumulated_(initial.size(), 0) {
  const at::ScalarType type = weight_type(numerics.precision);
  const at::ScalarType accumulator = numerics.gradient_bytes() == 4 ? at::kFloat : type;
  for (size_t i = 0; i < initial.size(); ++i) {
    const at::Tensor value = initial[i];
    if (!in_8_bits.empty() && in_8_bits[i]) {
      int8_[i] = moved_to(devices[i], trainer::in_8_bits(value));
      values_.push_back(stand_in(value.sizes(), devices[i]));
    } else {
      values_.push_back(value.to(devices[i], type, false, true).requires_grad_(true));
    }
    gradients_.push_back(at::zeros(value.sizes(), at::device(devices[i]).dtype(accumulator)));
    attach_hook(i);
  }
}

void Parameters::attach_hook(size_t index) {
  torch::autograd::impl::set_post_acc_grad_hooks(values_[index], std::make_unique<Hook>(*this, index));
}

void Parameters::accumulate(size_t index) {
  at::Tensor& fresh = values_[index].mutable_grad();
  if (accumulated_[index] == micro_batch_) {
    const at::NoGradGuard no_grad;
    gradients_[index].add_(fresh);
    ++accumulated_[index];
  }
  fresh.reset();
}

void Parameters::clear_gradients() {
  const at::NoGradGuard no_grad;
  for (at::Tensor& gradient : gradients_) gradient.zero_();
  std::fill(accumulated_.begin(), accumulated_.end(), 0);
}

void Parameters::settle() {
  std::set<int> waited;
  for (const at::Tensor& value : values_)
    if (value.is_cuda() && waited.insert(value.device().index()).second)
      wait_for_autograd_thread(value.device());
  for (at::Tensor& value : values_) value.mutable_grad().reset();
}

void Parameters::check_complete(uint32_t micro_batches) const {
  for (size_t i = 0; i < size(); ++i)
    if (accumulated_[i] != micro_batches)
      throw std::logic_error("parameter '" + names_[i] + "' accumulated " + std::to_string(accumulated_[i]) +
                             " of " + std::to_string(micro_batches) + " micro-batches");
}

void Parameters::relocate(size_t first, size_t count, at::Device device) {
  std::vector<at::Tensor> values, gradients;
  std::vector<Int8Weight> int8;
  for (size_t i = first; i < first + count; ++i) {
    if (values_[i].device() == device) return;  // layers move as a whole
    int8.push_back(moved_to(device, int8_[i]));
    values.push_back(int8_[i].defined() ? stand_in(values_[i].sizes(), device)
                                        : values_[i].detach().to(device).requires_grad_(true));
    gradients.push_back(gradients_[i].to(device));
  }
  for (size_t i = 0; i < count; ++i) {
    values_[first + i] = std::move(values[i]);
    int8_[first + i] = std::move(int8[i]);
    gradients_[first + i] = std::move(gradients[i]);
    attach_hook(first + i);
  }
}

std::vector<std::pair<const char*, at::Tensor>> Parameters::stored(size_t index) const {
  if (const Int8Weight* weight = int8(index)) return {{".codes", weight->codes}, {".scales", weight->scales}};
  return {{"", values_[index]}};
}

uint64_t Parameters::hash() const {
  uint64_t value = 0xcbf29ce484222325ull;
  for (size_t index = 0; index < size(); ++index) {
    for (const auto& [ending, tensor] : stored(index)) {
      const at::Tensor host = tensor.detach().cpu().contiguous();
      const auto* bytes = static_cast<const unsigned char*>(host.const_data_ptr());
      for (size_t i = 0; i < host.nbytes(); ++i) value = (value ^ bytes[i]) * 0x100000001b3ull;
    }
  }
  return value;
}

}  // namespace spillway::trainer
