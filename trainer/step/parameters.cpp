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

}  // namespace

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

at::ScalarType gradient_type(const Numerics& numerics) {
  return numerics.gradient_bytes() == 4 ? at::kFloat : weight_type(numerics.precision);
}

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
                       const std::vector<bool>& in_8_bits, const Residence& residence)
    : names_(std::move(names)),
      devices_(devices),
      units_(residence.units),
      shares_(residence.shares),
      value_shares_(initial.size()),
      gradient_shares_(initial.size()),
      tiled_(initial.size()),
      table_(residence.table),
      layout_(residence.layout),
      accumulated_(initial.size(), 0) {
  for (StreamedLayers* streamed :
       {&streamed_values_, &streamed_gradients_, &tile_caches_.values, &tile_caches_.gradients})
    streamed->set_folder(residence.nvme);
  if (residence.values >= Place::kHost) values_at_ = residence.values;
  if (residence.gradients >= Place::kHost) gradients_at_ = residence.gradients;
  for (size_t i = 0; i < initial.size(); ++i)
    if (unit_of(i) >= 0) {
      Range& range = ranges_[uint32_t(unit_of(i))];
      if (range.count++ == 0) range.first = i;
    }
  for (size_t i = 0; i < initial.size(); ++i) {
    add(initial[i], numerics, !in_8_bits.empty() && in_8_bits[i], residence);
    const int unit = unit_of(i);
    if (unit < 0 || (i + 1 < initial.size() && unit_of(i + 1) == unit)) continue;
    Range& range = ranges_.at(uint32_t(unit));
    const auto streams = [&](Place place) { return residence.homes.of(place, devices_[i]) != devices_[i]; };
    if (residence.tiles > 1 && streams(residence.values) && streams(residence.gradients)) {
      cut(uint32_t(unit), &range, residence.tiles);
      continue;
    }
    if (streams(residence.values))
      stream(&streamed_values_, uint32_t(unit), tensors_of_values(range), residence.values, residence.homes,
             false);
    if (streams(residence.gradients))
      stream(&streamed_gradients_, uint32_t(unit), tensors_of_gradients(range), residence.gradients,
             residence.homes, true);
    if (shares_.of_values) share_unit(uint32_t(unit), Role::kValues);
    if (has_shares()) share_unit(uint32_t(unit), Role::kGradients);
    if (streams(residence.values) || shares_.of_values) renew_leaves(range);
  }
  reserve();
}

// On its device, or where it will live elsewhere a weight on the host and an accumulator without memory.
void Parameters::add(const at::Tensor& initial, const Numerics& numerics, bool in_8_bits,
                     const Residence& residence) {
  const size_t index = values_.size();
  const at::Device device = devices_[index];
  const auto streams = [&](Place place) {
    return unit_of(index) >= 0 && residence.homes.of(place, device) != device;
  };
  const at::Device home = streams(residence.values) ? at::kCPU : device;
  const at::ScalarType type = weight_type(numerics.precision);
  Int8Weight int8;
  if (in_8_bits) {
    int8 = trainer::in_8_bits(initial);
    int8 = {int8.codes.to(home), int8.scales.to(home)};
  }
  values_.push_back(in_8_bits          ? stand_in(initial.sizes(), device)
                    : is_shared(index) ? without_memory(initial.sizes(), type, device)
                                       : initial.to(home, type, false, true).requires_grad_(true));
  int8_.push_back(std::move(int8));
  const at::Device sums = streams(residence.gradients) ? at::kMeta : device;
  const auto numbers = at::dtype(gradient_type(numerics));
  const bool goes_to_shares = has_shares() && unit_of(index) >= 0;
  gradients_.push_back(at::zeros(initial.sizes(), numbers.device(goes_to_shares ? at::kMeta : sums)));
  if (has_shares()) {
    const Span& own = shares_.own[index];
    gradient_shares_[index] = at::zeros({own.length}, numbers.device(sums));
    if (is_shared(index))
      value_shares_[index] = initial.view({-1}).narrow(0, own.begin, own.length).to(home, type, false, true);
  }
  attach_hook(index);
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
    if (accumulated_call_) accumulated_call_(index, micro_batch_);
  }
  fresh.reset();
}

void Parameters::clear(uint32_t unit) {
  const Range& range = ranges_.at(unit);
  for (size_t i = range.first; i < range.first + range.count; ++i)
    if (tiled_[i]) tiled_[i]->clear();
  if (has_shares()) summed_gradients_.cache_of(unit).set_zero(unit);
  if (streamed_gradients_.has(unit)) return streamed_gradients_.cache_of(unit).set_zero(unit);
  for (const at::Tensor* sums : tensors_of_gradients(range)) sums->zero_();
}

void Parameters::begin_micro_batch(uint32_t number, bool is_last) {
  micro_batch_ = tile_caches_.micro_batch = number;
  is_last_ = is_last;
  walk_ = Walk::kReadGradients;  // for whom `on_leaving` calls
  if (has_shares()) compute_after(outer_summed_, devices_.front());
}

void Parameters::clear_gradients() {
  const at::NoGradGuard no_grad;
  if (has_shares()) compute_after(last_sum_, devices_.front());
  forget_gathered();
  summed_.clear();
  for (size_t i = 0; i < size(); ++i) {
    if (unit_of(i) >= 0) continue;
    gradients_[i].zero_();
    if (has_shares()) gradient_shares_[i].zero_();
  }
  for (const auto& [unit, range] : ranges_)
    if (!waits_for_update(unit)) clear(unit);
  std::fill(accumulated_.begin(), accumulated_.end(), 0);
  for (const auto& matrix : tiled_)
    if (matrix) matrix->begin_anew();
}

void Parameters::settle() {
  std::set<int> waited;
  for (const at::Tensor& value : values_)
    if (value.is_cuda() && waited.insert(value.device().index()).second)
      wait_for_autograd_thread(value.device());
  for (at::Tensor& value : values_) value.mutable_grad().reset();
  for (const StreamedLayers* streamed : all_streamed()) streamed->for_each(&LayerCache::let_go);
  tile_caches_.let_go();
}

void Parameters::check_complete(uint32_t micro_batches) const {
  for (size_t i = 0; i < size(); ++i)
    if (!is_empty(i) && accumulated(i) != micro_batches)
      throw std::logic_error("parameter '" + names_[i] + "' accumulated " + std::to_string(accumulated(i)) +
                             " of " + std::to_string(micro_batches) + " micro-batches");
}

}  // namespace spillway::trainer
