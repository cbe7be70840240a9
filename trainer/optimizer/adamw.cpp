#include "trainer/optimizer/adamw.h"

#include <cmath>
#include <numbers>

namespace spillway::trainer {
namespace {

at::Tensor zeros_at(const at::Tensor& like, at::Device device) {
  return at::zeros(like.sizes(), like.options().device(device).requires_grad(false));
}

int device_key(const at::Tensor& tensor) {
  return tensor.is_cuda() ? tensor.device().index() : -1;
}

}  // namespace

double learning_rate(const TrainConfig& train, uint64_t step) {
  if (step < train.warmup) return train.learning_rate * double(step + 1) / double(train.warmup);
  const double left = double(train.steps > train.warmup ? train.steps - train.warmup : 1);
  const double done = std::min(1.0, double(step - train.warmup) / left);
  const double floor = std::min(train.minimum_learning_rate, train.learning_rate);
  return floor + (train.learning_rate - floor) * 0.5 * (1 + std::cos(std::numbers::pi * done));
}

AdamW::AdamW(Parameters& parameters, const TrainConfig& train, Place place)
    : parameters_(parameters), train_(train) {
  for (const at::Tensor& value : parameters.values()) {
    const at::Device device = place == Place::kHost ? at::Device(at::kCPU) : value.device();
    moments_.push_back({zeros_at(value, device), zeros_at(value, device), place == Place::kHost});
  }
  for (at::Tensor* number : {&numbers_.clip, &numbers_.keep, &numbers_.beta1, &numbers_.beta2,
                             &numbers_.correction, &numbers_.epsilon})
    *number = at::zeros({}, at::TensorOptions().dtype(at::kFloat));
  prepare_tiles();
}

void AdamW::prepare_tiles() {
  std::map<int, int64_t> needed;
  for (size_t i = 0; i < moments_.size(); ++i)
    if (moments_[i].on_host) {
      int64_t& elements = needed[device_key(parameters_.value(i))];
      elements = std::max(elements, std::min(kTileElements, parameters_.value(i).numel()));
    }
  for (size_t i = 0; i < moments_.size(); ++i) {
    const int key = device_key(parameters_.value(i));
    if (!needed.count(key) || (tiles_.count(key) && tiles_[key].first.numel() == needed[key])) continue;
    const auto options = parameters_.value(i).options().requires_grad(false);
    tiles_[key] = {at::empty({needed[key]}, options), at::empty({needed[key]}, options)};
  }
  std::erase_if(tiles_, [&](const auto& entry) { return !needed.count(entry.first); });
}

void AdamW::prepare() {
  const at::NoGradGuard no_grad;
  prepare_tiles();
  std::vector<at::Tensor> norms;
  for (size_t i = 0; i < parameters_.size(); ++i)
    norms.push_back(at::linalg_vector_norm(parameters_.gradient(i).view({-1}), 2));
  double squares = 0;  // in the order of the parameters, on the host: the same wherever the layers lie
  for (const at::Tensor& norm : norms) {
    const double value = norm.item().toDouble();
    squares += value * value;
  }
  norm_ = std::sqrt(squares);
  clip_ = train_.clip > 0 && norm_ > train_.clip ? train_.clip / (norm_ + 1e-6) : 1;
}

void AdamW::set_numbers(uint64_t step) {
  const double rate = learning_rate(train_, step), t = double(step + 1);
  const auto set = [](at::Tensor& number, double value) { *number.mutable_data_ptr<float>() = float(value); };
  set(numbers_.clip, clip_);
  set(numbers_.keep, 1 - rate * train_.weight_decay);
  set(numbers_.beta1, train_.beta1);
  set(numbers_.beta2, train_.beta2);
  set(numbers_.correction, 1 / std::sqrt(1 - std::pow(train_.beta2, t)));
  set(numbers_.epsilon, train_.epsilon);
  rate_ = rate / (1 - std::pow(train_.beta1, t));
}

void AdamW::commit(uint64_t step) {
  const at::NoGradGuard no_grad;
  set_numbers(step);
  for (size_t i = 0; i < moments_.size(); ++i) update(i);
}

void AdamW::update(size_t index) {
  Moments& moments = moments_[index];
  const at::Tensor value = parameters_.value(index).detach().view({-1});
  const at::Tensor gradient = parameters_.gradient(index).view({-1});
  const at::Tensor first = moments.first.view({-1}), second = moments.second.view({-1});
  const bool decays = parameters_.value(index).dim() >= 2;  // norms and biases do not
  for (int64_t begin = 0; begin < value.numel(); begin += kTileElements) {
    const int64_t length = std::min(kTileElements, value.numel() - begin);
    at::Tensor m = first.narrow(0, begin, length), v = second.narrow(0, begin, length);
    if (moments.on_host) {
      const Tiles& tiles = tiles_.at(device_key(value));
      m = tiles.first.narrow(0, 0, length).copy_(m);
      v = tiles.second.narrow(0, 0, length).copy_(v);
    }
    update_tile(value.narrow(0, begin, length), gradient.narrow(0, begin, length), m, v, decays);
    if (moments.on_host) {
      first.narrow(0, begin, length).copy_(m);
      second.narrow(0, begin, length).copy_(v);
    }
  }
}

void AdamW::update_tile(at::Tensor value, at::Tensor gradient, at::Tensor first, at::Tensor second,
                        bool decays) const {
  if (clip_ != 1) gradient.mul_(numbers_.clip);
  if (decays && train_.weight_decay > 0) value.mul_(numbers_.keep);
  first.mul_(numbers_.beta1).add_(gradient, 1 - train_.beta1);
  second.mul_(numbers_.beta2).addcmul_(gradient, gradient, 1 - train_.beta2);
  // From here on the gradient's memory holds the denominator.
  at::sqrt_out(gradient, second);
  gradient.mul_(numbers_.correction).add_(numbers_.epsilon);
  value.addcdiv_(first, gradient, -rate_);
}

void AdamW::move_to(Place place) {
  for (size_t i = 0; i < moments_.size(); ++i) {
    Moments& moments = moments_[i];
    const at::Device device = place == Place::kHost ? at::Device(at::kCPU) : parameters_.value(i).device();
    Moments moved{moments.first.to(device), moments.second.to(device), place == Place::kHost};
    moments = std::move(moved);
  }
  prepare_tiles();
}

void AdamW::relocate(size_t first, size_t count, at::Device device) {
  for (size_t i = first; i < first + count; ++i) {
    if (moments_[i].on_host) continue;
    Moments moved{moments_[i].first.to(device), moments_[i].second.to(device), false};
    moments_[i] = std::move(moved);
  }
}

}  // namespace spillway::trainer
