#include <algorithm>
#include <cmath>

#include "trainer/optimizer/rules/rules.h"
#include "trainer/plan/parameters/optimizer_state.h"

namespace spillway::trainer {
namespace {

constexpr double kLeastSquare = 1e-30, kLeastSize = 1e-3;  // ε1 and ε2 of the paper

double item(const at::Tensor& number) {
  return number.item().toDouble();
}

// The root of the mean of the squares.
double size_of(const at::Tensor& value) {
  return item(at::linalg_vector_norm(value.view({-1}), 2, {}, false, at::kFloat)) /
         std::sqrt(double(value.numel()));
}

// How much of the second moment stays at an update.
double kept_at(const Update& update) {
  return 1 - std::pow(double(update.number), -0.8);
}

// The mean of the squares along `dimension`, of floats or smaller numbers.
at::Tensor mean_square(const at::Tensor& gradient, int64_t dimension) {
  return at::linalg_vector_norm(gradient, 2, {dimension}, false, at::kFloat)
      .square_()
      .div_(gradient.size(dimension));
}

at::Tensor moved_on(const at::Tensor& state, const at::Tensor& fresh, double scale, double kept) {
  at::Tensor next = state.to(fresh.device(), at::kFloat, false, true);
  return next.mul_(kept).add_(fresh.mul(scale * scale).add_(kLeastSquare), 1 - kept);
}

}  // namespace

void AdafactorRule::prepare_matrix(const Update& update, const Updated& of, Next* next) const {
  const double kept = kept_at(update);
  const size_t first = of.states->size() - 2;
  const at::Tensor row = moved_on((*of.states)[first], mean_square(of.gradient, 1), update.scale, kept);
  const at::Tensor column =
      moved_on((*of.states)[first + 1], mean_square(of.gradient, 0), update.scale, kept);
  next->states = {row, column};
  next->row_factor = row.div(row.mean()).rsqrt_();
  next->factor = column.rsqrt();
  next->columns = of.gradient.size(1);
}

void AdafactorRule::prepare_vector(const Update& update, const Updated& of, Next* next) const {
  next->states = {
      moved_on(of.states->back(), of.gradient.to(at::kFloat).square(), update.scale, kept_at(update))};
  next->factor = next->states[0].rsqrt();
  next->columns = 0;
}

// What an update does to a tile of gradients, but for the rate.
at::Tensor AdafactorRule::tile_of(const at::Tensor& gradient, const Next& next, int64_t begin) const {
  if (next.columns == 0) return gradient.mul_(next.factor.narrow(0, begin, gradient.numel()));
  const int64_t rows = gradient.numel() / next.columns;
  gradient.view({rows, next.columns})
      .mul_(next.row_factor.narrow(0, begin / next.columns, rows).unsqueeze(1))
      .mul_(next.factor);
  return gradient;
}

double AdafactorRule::update_size(const Update& update, const Updated& of, const Next& next) const {
  const int64_t elements = of.gradient.numel();
  const int64_t tile = tile_elements(train_.numerics, of.gradient.sizes().vec(), true);
  const at::Tensor all = of.gradient.view({-1});
  double squares = 0;
  for (int64_t begin = 0; begin < elements; begin += tile) {
    const at::Tensor part =
        all.narrow(0, begin, std::min(tile, elements - begin)).to(at::kFloat, false, true);
    const double norm = item(at::linalg_vector_norm(tile_of(part, next, begin), 2)) * update.scale;
    squares += norm * norm;
  }
  return std::sqrt(squares / double(elements));
}

void AdafactorRule::prepare(const Update& update, const Updated& of) {
  Next& next = next_[of.index];
  of.gradient.dim() == 2 ? prepare_matrix(update, of, &next) : prepare_vector(update, of, &next);
  next.rate = update.rate * std::max(kLeastSize, size_of(of.value()));
  next.limit = std::max(1.0, update_size(update, of, next));
}

void AdafactorRule::apply(const Tile& tile) {
  const Next& next = next_[tile.parameter];
  if (tile.decays && train_.weight_decay > 0) tile.value.mul_(keep_ = 1 - next.rate * train_.weight_decay);
  tile.value.add_(tile_of(tile.gradient, next, tile.begin), -next.rate / next.limit);
}

void AdafactorRule::finish(const Updated& of) {
  const Next& next = next_[of.index];
  const size_t first = of.states->size() - next.states.size();
  for (size_t i = 0; i < next.states.size(); ++i) (*of.states)[first + i].copy_(next.states[i]);
}

}  // namespace spillway::trainer
