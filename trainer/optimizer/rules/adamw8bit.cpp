#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>

#include "trainer/optimizer/device_key.h"
#include "trainer/optimizer/quantization/dynamic_map.h"
#include "trainer/optimizer/rules/rules.h"
#include "trainer/plan/parameters/optimizer_state.h"

namespace spillway::trainer {
namespace {

constexpr int64_t kBlocksAtOnce = 64;  // of one thread

int64_t blocks_of(int64_t elements) {
  return (elements + kQuantizationBlock - 1) / kQuantizationBlock;
}

template <typename Table>
at::Tensor on_device(const Table& table, at::Device device) {
  return at::from_blob(const_cast<float*>(table.data()), {int64_t(table.size())}, at::kFloat)
      .to(device, false, true);
}

// From the beginning of a block on.
Tile part_of(const Tile& tile, int64_t begin, int64_t elements) {
  Tile part = tile;
  part.begin += begin;
  part.value = tile.value.narrow(0, begin, elements);
  part.gradient = tile.gradient.narrow(0, begin, elements);
  for (size_t i = 0; i < part.states.size(); i += 2) {
    part.states[i] = tile.states[i].narrow(0, begin, elements);
    part.states[i + 1] = tile.states[i + 1].narrow(0, begin / kQuantizationBlock, blocks_of(elements));
  }
  return part;
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

// What is no number has the code of 0.
void encode_from(const at::Tensor& padded, at::Tensor rounded, at::Tensor index, at::Tensor by_scale,
                 const at::Tensor& thresholds, const at::Tensor& codes, at::Tensor scales) {
  at::abs_out(rounded, padded);
  at::amax_out(scales, in_blocks(rounded), {1});
  scales.clamp_min_(kLeastBlockScale);
  at::reciprocal_out(by_scale, scales);
  at::Tensor blocks = in_blocks(rounded);
  at::mul_out(blocks, in_blocks(padded), by_scale.unsqueeze(1));
  at::nan_to_num_out(rounded, rounded, 0);
  at::bucketize_out(index, rounded, thresholds, /*out_int32=*/true, /*right=*/true);
  codes.copy_(index.narrow(0, 0, codes.numel()));
}

}  // namespace

void QuantizedAdamWRule::reserve(at::Device device, int64_t elements) {
  small_.reserve(device, std::min(elements, kLeastQuantizedElements));
  if (!device.is_cuda()) return;
  if (kernels_.prepared(device) == nullptr)
    return reserve_operators(device, std::min(elements, kTileElements));
  rooms_.erase(device_key(device));
}

void QuantizedAdamWRule::reserve_operators(at::Device device, int64_t elements) {
  Room& room = rooms_[device_key(device)];
  const int64_t blocks = blocks_of(elements), padded = blocks * kQuantizationBlock;
  if (room.index.defined() && room.index.numel() == padded) return;
  const auto floats = at::device(device).dtype(at::kFloat);
  room.first = at::empty({padded}, floats), room.second = at::empty({padded}, floats);
  room.rounded = at::empty({padded}, floats), room.by_scale = at::empty({blocks}, floats);
  room.index = at::empty({padded}, floats.dtype(at::kInt));
  room.first_map = {on_device(signed_codes(), device), on_device(signed_thresholds(), device)};
  room.second_map = {on_device(unsigned_codes(), device), on_device(unsigned_thresholds(), device)};
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
  keep_ = kept_, beta1_ = numbers_.beta1, beta2_ = numbers_.beta2;
  rest1_ = 1 - numbers_.beta1, rest2_ = 1 - numbers_.beta2;
  rate_ = numbers_.rate, correction_ = numbers_.correction, epsilon_ = numbers_.epsilon;
}

bool QuantizedAdamWRule::apply_at_once(const Tile& tile) {
  return tile.states.size() == 2 && small_.apply_at_once(tile);
}

void QuantizedAdamWRule::apply(const Tile& tile) {
  if (tile.states.size() == 2)
    small_.apply(tile);
  else if (!tile.value.is_cuda())
    apply_in_one_pass(tile);
  else if (const BlockwiseKernel* const kernel = kernels_.on(tile.value))
    kernel->update(update_of(tile));
  else
    for (int64_t begin = 0; begin < tile.value.numel(); begin += kTileElements)
      apply_by_operators(part_of(tile, begin, std::min(kTileElements, tile.value.numel() - begin)));
}

BlockwiseUpdate QuantizedAdamWRule::update_of(const Tile& tile) const {
  AdamWNumbers numbers = numbers_;
  if (tile.decays) numbers.keep = kept_;
  return {.numbers = numbers,
          .value = tile.value.mutable_data_ptr<float>(),
          .gradient = tile.gradient.const_data_ptr<float>(),
          .moments = {tile.states[0].mutable_data_ptr<uint8_t>(), tile.states[1].mutable_data_ptr<float>(),
                      tile.states[2].mutable_data_ptr<uint8_t>(), tile.states[3].mutable_data_ptr<float>()},
          .elements = tile.value.numel(),
          .first = signed_map(),
          .second = unsigned_map()};
}

void QuantizedAdamWRule::apply_in_one_pass(const Tile& tile) const {
  const BlockwiseUpdate update = update_of(tile);
  const QuantizedMoments& moments = update.moments;
  at::parallel_for(0, blocks_of(update.elements), kBlocksAtOnce, [&](int64_t begin, int64_t end) {
    const int64_t from = begin * kQuantizationBlock,
                  to = std::min<int64_t>(update.elements, end * kQuantizationBlock);
    update_blocks(update.numbers, update.value + from, update.gradient + from,
                  {moments.first_codes + from, moments.first_scales + begin, moments.second_codes + from,
                   moments.second_scales + begin},
                  to - from);
  });
}

// Products and sums apart, so that LibTorch's kernels round each as the other ways do: a product that is
// added by one operator may be rounded with the sum.
void QuantizedAdamWRule::apply_by_operators(const Tile& tile) {
  const Room& room = rooms_.at(device_key(tile.value));
  const int64_t elements = tile.value.numel(), padded = blocks_of(elements) * kQuantizationBlock;
  const at::Tensor first = room.first.narrow(0, 0, padded), second = room.second.narrow(0, 0, padded),
                   rounded = room.rounded.narrow(0, 0, padded), index = room.index.narrow(0, 0, padded),
                   by_scale = room.by_scale.narrow(0, 0, blocks_of(elements));
  decode_into(first, index, tile.states[0], tile.states[1], room.first_map.numbers, kSignedZero);
  decode_into(second, index, tile.states[2], tile.states[3], room.second_map.numbers, 0);
  const at::Tensor moved_first = first.narrow(0, 0, elements), moved_second = second.narrow(0, 0, elements);
  at::Tensor product = rounded.narrow(0, 0, elements);
  at::mul_out(product, tile.gradient, rest1_);
  moved_first.mul_(beta1_).add_(product);
  at::mul_out(product, tile.gradient, rest2_);
  moved_second.mul_(beta2_).add_(product.mul_(tile.gradient));
  if (tile.decays) tile.value.mul_(keep_);
  at::Tensor change = tile.gradient;
  at::sqrt_out(change, moved_second);
  change.mul_(correction_).add_(epsilon_);
  at::div_out(change, moved_first, change);
  tile.value.sub_(change.mul_(rate_));
  encode_from(first, rounded, index, by_scale, room.first_map.thresholds, tile.states[0], tile.states[1]);
  encode_from(second, rounded, index, by_scale, room.second_map.thresholds, tile.states[2], tile.states[3]);
}

}  // namespace spillway::trainer
