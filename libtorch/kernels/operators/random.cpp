#include "libtorch/kernels/operators/random.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/ops/bernoulli.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones_like.h>
#include <c10/cuda/CUDAGuard.h>

#include <mutex>
#include <tuple>

#include "libtorch/kernels/call.h"
#include "libtorch/kernels/recording.h"

namespace spillway::kernels {
namespace {

constexpr uint64_t kOffsetPerDraw = 4;  // CUDA generators demand multiples of 4

uint64_t split_mix(uint64_t& state) {
  uint64_t z = (state += 0x9E3779B97F4A7C15u);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

// mt19937's own seeding keeps 32 bits: fill its whole state from the key instead.
at::mt19937 engine_of(DrawKey key) {
  uint64_t state = key.seed;
  state = split_mix(state) ^ key.offset;
  at::mt19937_data_pod data{};
  data.seed_ = key.seed;
  data.left_ = 1;
  data.seeded_ = true;
  data.next_ = 0;
  for (size_t i = 0; i < data.state_.size(); i += 2) {
    const uint64_t word = split_mix(state);
    data.state_[i] = static_cast<uint32_t>(word);
    data.state_[i + 1] = static_cast<uint32_t>(word >> 32);
  }
  at::mt19937 engine;
  engine.set_data(data);
  return engine;
}

at::Tensor keep_mask(const at::Tensor& input, double keep, const at::Generator& generator,
                     at::ScalarType type) {
  at::Tensor mask = at::empty_like(input, input.options().dtype(type), at::MemoryFormat::Contiguous);
  return mask.bernoulli_(keep, generator);
}

std::tuple<at::Tensor, at::Tensor> native_dropout(const at::Tensor& input, double p,
                                                  std::optional<bool> train) {
  Call call("aten::native_dropout");
  const at::Tensor x = call.argument(input);
  const bool draws = train.value_or(true) && x.numel() > 0;
  const at::Generator generator = draws ? draw(std::nullopt, call.device()) : at::Generator();
  call.begin();
  at::Tensor mask;
  at::Tensor output;
  if (draws) {
    const double keep = 1. - p;
    mask = keep_mask(x, keep, generator, at::kBool);
    output = x.mul(mask).mul_(keep == 0 ? 0. : 1. / keep);
  } else {
    mask = at::ones_like(x, x.options().dtype(at::kBool), at::MemoryFormat::Contiguous);
    output = x.clone();
  }
  call.end();
  std::tuple<at::Tensor, at::Tensor> results{call.result(output), call.result(mask)};
  call.finish();
  return results;
}

// `p` is the probability to keep, as in CUDA's kernel. The dispatcher demands a generator by value.
// NOLINTBEGIN(performance-unnecessary-value-param)
std::tuple<at::Tensor, at::Tensor> fused_dropout(const at::Tensor& input, double p,
                                                 std::optional<at::Generator> given) {
  // NOLINTEND(performance-unnecessary-value-param)
  Call call("aten::_fused_dropout");
  const at::Tensor x = call.argument(input);
  const at::Generator generator = draw(given, call.device());
  call.begin();
  at::Tensor mask = keep_mask(x, p, generator, at::kByte);
  at::Tensor output = x.mul(mask).mul_(1. / p);
  call.end();
  std::tuple<at::Tensor, at::Tensor> results{call.result(output), call.result(mask)};
  call.finish();
  return results;
}

at::Tensor masked_scale(const at::Tensor& self, const at::Tensor& mask, double scale) {
  Call call("aten::_masked_scale");
  const at::Tensor x = call.argument(self);
  const at::Tensor m = call.argument(mask);
  call.begin();
  const at::Tensor output = x.mul(m).mul_(scale);
  call.end();
  at::Tensor result = call.result(output);
  call.finish();
  return result;
}

}  // namespace

DrawKey next_draw(const std::optional<at::Generator>& given, c10::DeviceIndex device) {
  if (is_replaying()) return replayed_draw();
  const bool explicit_generator = given.has_value() && given->defined();
  at::Generator generator =
      explicit_generator ? *given
                         : at::globalContext().defaultGenerator(c10::Device(c10::DeviceType::CUDA, device));
  TORCH_CHECK(generator.device().is_cuda(), "Expected a 'cuda' device type for generator but found '",
              generator.device().type(), "'");
  const std::lock_guard<std::mutex> lock(generator.mutex());
  if (is_recording()) {
    // The generator asks whether the current device's stream captures.
    const c10::cuda::CUDAGuard here(device);
    return record_draw(
        at::check_generator<at::CUDAGeneratorImpl>(generator)->philox_cuda_state(kOffsetPerDraw));
  }
  const DrawKey key{generator.current_seed(), generator.get_offset()};
  generator.set_offset(key.offset + kOffsetPerDraw);
  return key;
}

at::Generator generator_of(DrawKey key) {
  thread_local at::Generator generator = at::detail::createCPUGenerator();
  auto* impl = generator.get<at::CPUGeneratorImpl>();
  impl->set_engine(engine_of(key));
  impl->set_next_float_normal_sample(std::nullopt);
  impl->set_next_double_normal_sample(std::nullopt);
  return generator;
}

void register_random(OwnKernels& library) {
  library.impl("native_dropout", &native_dropout);
  library.impl("_fused_dropout", &fused_dropout);
  library.impl("_masked_scale", &masked_scale);
}

}  // namespace spillway::kernels
