#include "trainer/optimizer/stochastic_rounding.h"

#include <ATen/Context.h>

#include "trainer/data/mix.h"
#include "trainer/optimizer/device_key.h"

namespace spillway::trainer {
void StochasticRounding::reserve(at::Device device) {
  // A copy: drawing from it leaves the model's random numbers alone.
  if (!generators_.contains(device_key(device)))
    generators_.emplace(device_key(device), at::globalContext().defaultGenerator(device).clone());
}

at::Generator& StochasticRounding::generator_for(at::Device device, const Key& key) {
  at::Generator& generator = generators_.at(device_key(device));
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_current_seed(mix(mix(mix(seed_, key.update), key.parameter), key.begin));
  return generator;
}

void StochasticRounding::draw(const at::Tensor& to, const Key& key) {
  to.uniform_(0, 1, generator_for(to.device(), key));
}

void StochasticRounding::round(const at::Tensor& from, const at::Tensor& bits, const at::Tensor& to,
                               const Key& key) {
  bits.random_(0, 1 << 16, generator_for(to.device(), key));
  // Of a float that is no number, as GPUs have it, the sum would run over and be one.
  from.view(at::kInt).clamp_max_(0x7fff0000).add_(bits).bitwise_and_(upper_half_);
  to.copy_(from);  // exact: what is cut is zero
}

}  // namespace spillway::trainer
