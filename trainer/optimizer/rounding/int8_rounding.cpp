#include "trainer/optimizer/rounding/int8_rounding.h"

#include "trainer/optimizer/device_key.h"

namespace spillway::trainer {
namespace {

// Of a float that is no number, as GPUs have it, the sum would run over and be one.
constexpr int kMostBits = 0x7fff0000;

at::Tensor in_rows(const at::Tensor& floats, const Int8Weight& rows) {
  return floats.view(rows.codes.sizes());
}

// The largest of each row, whose numbers are lost. By operations on elements: a GPU's reduction may ask its
// allocator for room.
at::Tensor largest_of_rows(const at::Tensor& numbers) {
  for (int64_t width = numbers.size(1); width > 1;) {
    const int64_t half = (width + 1) / 2;
    at::Tensor low = numbers.narrow(1, 0, width - half);
    at::maximum_out(low, low, numbers.narrow(1, half, width - half));
    width = half;
  }
  return numbers.select(1, 0);
}

}  // namespace

void Int8Rounding::reserve(at::Device device, int64_t rows) {
  at::Tensor& scratch = scratch_[device_key(device)];
  if (!scratch.defined() || scratch.numel() != rows)
    scratch = at::empty({rows}, at::device(device).dtype(at::kFloat));
}

at::Tensor Int8Rounding::scales_of(const Int8Weight& rows) const {
  return scratch_.at(device_key(rows.codes)).narrow(0, 0, rows.codes.size(0));
}

void Int8Rounding::read(const Int8Weight& rows, const at::Tensor& floats) {
  const at::Tensor scales = scales_of(rows);
  scales.copy_(rows.scales);
  in_rows(floats, rows).copy_(rows.codes).mul_(scales.unsqueeze(1));
}

void Int8Rounding::round(const at::Tensor& floats, const at::Tensor& work, const at::Tensor& chances,
                         const Int8Weight& rows) {
  at::Tensor numbers = in_rows(floats, rows), sizes = in_rows(work, rows);
  const at::Tensor scales = scales_of(rows);
  at::abs_out(sizes, numbers);
  most_code_ = kMostCode;
  scales.copy_(largest_of_rows(sizes))
      .div_(static_cast<const at::Tensor&>(most_code_))
      .clamp_min_(kLeastScale);
  // Up to what bfloat16 holds.
  scales.view(at::kInt).clamp_max_(kMostBits).add_(carry_).bitwise_and_(upper_half_);
  rows.scales.copy_(scales);
  numbers.div_(scales.unsqueeze(1));
  at::floor_out(sizes, numbers);
  numbers.sub_(sizes).gt_(in_rows(chances, rows)).add_(sizes).clamp_(-kMostCode, kMostCode);
  rows.codes.copy_(numbers);
}

}  // namespace spillway::trainer
