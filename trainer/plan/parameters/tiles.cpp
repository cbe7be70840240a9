#include "trainer/plan/parameters/tiles.h"

#include "trainer/plan/parameters/optimizer_state.h"

namespace spillway::trainer {

int64_t tile_lines(int64_t lines, uint32_t tiles) {
  const int64_t even = tiles_in(lines, tiles);
  return std::min(lines, tiles_in(even, kTileLines) * kTileLines);
}

std::optional<MatrixCut> cut_of(const Parameter& parameter, uint32_t tiles) {
  if (tiles < 2 || parameter.layer < 0 || parameter.sizes.size() != 2) return std::nullopt;
  MatrixCut cut{.tiles = tiles, .rows = parameter.sizes[0], .columns = parameter.sizes[1]};
  cut.row_tile = tile_lines(cut.rows, tiles);
  cut.column_tile = tile_lines(cut.columns, tiles);
  const int64_t runs = std::max<int64_t>(1, cut.row_tile * cut.columns / kTileElements);
  cut.update_tile = std::min(cut.rows * cut.columns, runs * kTileElements);
  return cut;
}

bool can_tile(const Numerics& numerics) {
  return numerics.precision != Precision::kInt8 && numerics.optimizer != OptimizerKind::kAdafactor;
}

uint32_t tiles_of(const Plan& plan, const Numerics& numerics) {
  return can_tile(numerics) ? normalised(plan).tiles : 1;
}

}  // namespace spillway::trainer
