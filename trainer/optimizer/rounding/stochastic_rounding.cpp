#include "trainer/optimizer/rounding/stochastic_rounding.h"

#include <ATen/Parallel.h>

#include <array>

#include "trainer/data/mix.h"
#include "trainer/optimizer/rounding/random_fill.h"

extern const char spillway_random_fill_source[];
extern const char spillway_chance_source[];
extern const char spillway_on_both_source[];

namespace spillway::trainer {
namespace {

constexpr int64_t kFilledAtOnce = 1 << 14;  // of one thread of a processor

void fill_on_host(const RandomFill& fill) {
  at::parallel_for(0, fill.elements, kFilledAtOnce, [&fill](int64_t begin, int64_t end) {
    RandomFill part = fill;
    part.to += begin, part.begin += begin, part.elements = end - begin;
    fill_randomly(part);
  });
}

void fill_on_card(const DeviceKernel& kernel, const RandomFill& fill) {
  const std::array ranges{
      device_range(fill.to, sizeof(unsigned) * static_cast<uint64_t>(fill.elements), true)};
  kernel.launch({.argument = &fill,
                 .blocks = (fill.elements + kFillThreads - 1) / kFillThreads,
                 .threads = kFillThreads,
                 .ranges = ranges,
                 .bytes = ranges[0].bytes,
                 .compute = [&fill](ptrdiff_t offset) {
                   RandomFill there = fill;
                   there.to = moved(there.to, offset);
                   fill_randomly(there);
                 }});
}

}  // namespace

KernelCode random_fill_kernel() {
  return {.name = "spillway_fill_randomly",
          .source = {{{"trainer/optimizer/rounding/random_fill.h", spillway_random_fill_source},
                      {"trainer/optimizer/rounding/chance.h", spillway_chance_source},
                      {"trainer/runtime/on_both.h", spillway_on_both_source}}}};
}

StochasticRounding::StochasticRounding(uint64_t seed)
    : seed_(seed),
      kernels_(
          "random bits",
          [](at::Device device, NoKernel* why_not) {
            return DeviceKernel::make(random_fill_kernel(), device, why_not);
          },
          "by the processor, from which they are copied") {}

void StochasticRounding::reserve(at::Device device) {
  if (device.is_cuda()) kernels_.prepared(device);
}

uint64_t StochasticRounding::chance(const Key& key) const {
  return mix(mix(seed_, key.update), key.parameter);
}

void StochasticRounding::fill(const at::Tensor& to, const Key& key, bool fractions) {
  RandomFill fill{.to = static_cast<unsigned*>(to.mutable_data_ptr()),
                  .key = chance(key),
                  .begin = static_cast<long long>(key.begin),
                  .elements = to.numel(),
                  .fractions = fractions ? 1 : 0};
  if (!to.is_cuda()) return fill_on_host(fill);
  if (const DeviceKernel* const kernel = kernels_.on(to)) return fill_on_card(*kernel, fill);
  const at::Tensor there = at::empty(to.sizes(), to.options().device(at::kCPU));
  fill.to = static_cast<unsigned*>(there.mutable_data_ptr());
  fill_on_host(fill);
  to.copy_(there);
}

void StochasticRounding::draw(const at::Tensor& to, const Key& key) {
  fill(to, key, true);
}

void StochasticRounding::round(const at::Tensor& from, const at::Tensor& bits, const at::Tensor& to,
                               const Key& key) {
  fill(bits, key, false);
  // Of a float that is no number, as GPUs have it, the sum would run over and be one.
  from.view(at::kInt).clamp_max_(0x7fff0000).add_(bits).bitwise_and_(upper_half_);
  to.copy_(from);  // exact: what is cut is zero
}

}  // namespace spillway::trainer
