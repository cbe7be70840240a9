#include <ATen/Parallel.h>

#include <cmath>

#include "trainer/optimizer/device_key.h"
#include "trainer/optimizer/quantization/dynamic_map.h"
#include "trainer/optimizer/rules/rules.h"
#include "trainer/plan/optimizer_state.h"

namespace spillway::trainer {
namespace {

constexpr double kLeastScaleOfBlock = 1e-12;  // of a block of zeros
constexpr int64_t kBlocksAtOnce = 64;         // of one thread

int64_t blocks_of(int64_t elements) {
  return (elements + kQuantizationBlock - 1) / kQuantizationBlock;
}

template <typename Table>
at::Tensor on_device(const Table& table, at::Device device) {
  return at::from_blob(const_cast<float*>(table.data()), {int64_t(table.size())}, at::kFloat)
      .to(device, false, true);
}

at::Tensor in_blocks(const at::Tensor& padded) {
  return padded.view({-1, kQuantizationBlock});
}

// Into `padded`, whose numbers behind the last code become 0.
void decode_into(at::Tensor padded, const at::Tensor& index, const at::Tensor& codes,
                 const at::Tensor& scales, const at::Tensor& numbers, int64_t zero) {
  index.narrow(0, 0, codes.numel()).copy_(codes);
  index.narrow(0, codes.numel(), index.numel() - codes.numel()).fill_(zero);
  at::index_select_out(padded, numbers, 0, index);
  in_blocks(padded).mul_(scales.unsqueeze(1));
}

void encode_from(const at::Tensor& padded, at::Tensor rounded, at::Tensor index, const at::Tensor& thresholds,
                 const at::Tensor& codes, at::Tensor scales) {
  at::abs_out(rounded, padded);
  at::amax_out(scales, in_blocks(rounded), {1});
  scales.clamp_min_(kLeastScaleOfBlock);
  at::Tensor blocks = in_blocks(rounded);
  at::div_out(blocks, in_blocks(padded), scales.unsqueeze(1));
  at::bucketize_out(index, rounded, thresholds, /*out_int32=*/true, /*right=*/true);
  codes.copy_(index.narrow(0, 0, codes.numel()));
}

}  // namespace

void QuantizedAdamWRule::reserve(at::Device device, int64_t elements) {
  if (device.is_cuda()) reserve_operators(device, elements);
}

void QuantizedAdamWRule::reserve_operators(at::Device device, int64_t elements) {
  Room& room = rooms_[device_key(device)];
  const int64_t padded = blocks_of(elements) * kQuantizationBlock;
  if (room.index.defined() && room.index.numel() == padded) return;
  const auto floats = at::device(device).dtype(at::kFloat);
  room.first = at::empty({padded}, floats), room.second = at::empty({padded}, floats);
  room.rounded = at::empty({padded}, floats);
  room.index = at::empty({padded}, floats.dtype(at::kInt));
  room.first_map = {on_device(signed_codes(), device), on_device(thresholds_of(signed_codes()), device)};
  room.second_map = {on_device(unsigned_codes(), device), on_device(thresholds_of(unsigned_codes()), device)};
}

void QuantizedAdamWRule::begin(const Update& update) {
  small_.begin(update);
  const double t = double(update.number);
  numbers_ = {.keep = 1,
              .beta1 = float(train_.beta1),
              .beta2 = float(train_.beta2),
              .rate = float(update.rate / (1 - std::pow(train_.beta1, t))),
              .correction = float(1 / std::sqrt(1 - std::pow(train_.beta2, t))),
              .epsilon = float(train_.epsilon)};
  kept_ = float(1 - update.rate * train_.weight_decay);
  keep_ = kept_, beta1_ = train_.beta1, beta2_ = train_.beta2;
  correction_ = numbers_.correction, epsilon_ = train_.epsilon;
}

void QuantizedAdamWRule::apply(const Tile& tile) {
  if (tile.states.size() == 2)
    small_.apply(tile);
  else if (tile.value.is_cuda())
    apply_by_operators(tile);
  else
    apply_in_one_pass(tile);
}

void QuantizedAdamWRule::apply_in_one_pass(const Tile& tile) const {
  AdamWNumbers numbers = numbers_;
  if (tile.decays) numbers.keep = kept_;
  auto* value = tile.value.mutable_data_ptr<float>();
  const auto* gradient = tile.gradient.const_data_ptr<float>();
  auto* first = tile.states[0].mutable_data_ptr<uint8_t>();
  auto* first_scales = tile.states[1].mutable_data_ptr<float>();
  auto* second = tile.states[2].mutable_data_ptr<uint8_t>();
  auto* second_scales = tile.states[3].mutable_data_ptr<float>();
  const int64_t elements = tile.value.numel();
  at::parallel_for(0, blocks_of(elements), kBlocksAtOnce, [&](int64_t begin, int64_t end) {
    const int64_t from = begin * kQuantizationBlock, to = std::min(elements, end * kQuantizationBlock);
    update_blocks(numbers, value + from, gradient + from,
                  {first + from, first_scales + begin, second + from, second_scales + begin}, to - from);
  });
}

void QuantizedAdamWRule::apply_by_operators(const Tile& tile) {
  const Room& room = rooms_.at(device_key(tile.value.device()));
  const int64_t elements = tile.value.numel(), padded = blocks_of(elements) * kQuantizationBlock;
  const at::Tensor first = room.first.narrow(0, 0, padded), second = room.second.narrow(0, 0, padded),
                   rounded = room.rounded.narrow(0, 0, padded), index = room.index.narrow(0, 0, padded);
  decode_into(first, index, tile.states[0], tile.states[1], room.first_map.numbers, kSignedZero);
  decode_into(second, index, tile.states[2], tile.states[3], room.second_map.numbers, 0);
  const at::Tensor moved_first = first.narrow(0, 0, elements), moved_second = second.narrow(0, 0, elements);
  moved_first.mul_(beta1_).add_(tile.gradient, 1 - train_.beta1);
  moved_second.mul_(beta2_).addcmul_(tile.gradient, tile.gradient, 1 - train_.beta2);
  if (tile.decays) tile.value.mul_(keep_);
  at::Tensor denominator = tile.gradient;
  at::sqrt_out(denominator, moved_second);
  denominator.mul_(correction_).add_(epsilon_);
  tile.value.addcdiv_(moved_first, denominator, -numbers_.rate);
  encode_from(first, rounded, index, room.first_map.thresholds, tile.states[0], tile.states[1]);
  encode_from(second, rounded, index, room.second_map.thresholds, tile.states[2], tile.states[3]);
}

}  // namespace spillway::trainer
