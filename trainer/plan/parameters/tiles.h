// A layer's matrix in tiles, which pass through a device one after the other: how it is cut.
//
// A product's outputs are cut in the forward, its inputs in the backward, so that a tile makes whole sums of
// its numbers. Of a matrix that is stored as [out, in] these are rows and columns, of one that is [in, out]
// the other way round. The accumulated gradients are tiles of rows in both.
//
// Thread-safety: values and pure functions. Errors: none. Units: numbers, where no name says otherwise.
#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>

#include "trainer/plan/numerics.h"
#include "trainer/plan/parameters/parameter_table.h"
#include "trainer/plan/plan.h"

namespace spillway::trainer {

// A tile has a multiple of so many rows or columns: with fewer a processor's products round otherwise than
// the whole (docs/decisions.md).
inline constexpr int64_t kTileLines = 64;

// Lines of a tile, where so many are cut into `tiles`.
int64_t tile_lines(int64_t lines, uint32_t tiles);
inline int64_t tiles_in(int64_t lines, int64_t tile) {
  return (lines + tile - 1) / tile;
}

struct MatrixCut {
  uint32_t tiles = 1;                     // that were asked for
  int64_t rows = 0, columns = 0;          // as the matrix is stored
  int64_t row_tile = 0, column_tile = 0;  // rows of a tile of rows, columns of one of columns
  int64_t update_tile = 0;                // a run of numbers for the update, in whole tiles of the optimizer

  int64_t row_tiles() const { return tiles_in(rows, row_tile); }
  int64_t column_tiles() const { return tiles_in(columns, column_tile); }
  int64_t update_tiles() const { return tiles_in(rows * columns, update_tile); }
  // Of the largest tile of weights, and of gradients.
  int64_t most_weights() const { return std::max(most_gradients(), rows * column_tile); }
  int64_t most_gradients() const { return std::max(row_tile * columns, update_tile); }
};

// Nothing of what stays whole: what is no matrix of a layer.
std::optional<MatrixCut> cut_of(const Parameter& parameter, uint32_t tiles);

// Where the numerics allow it: an update of a tile must need no more than the tile.
bool can_tile(const Numerics& numerics);
// The plan's tiles, or 1 where nothing is cut.
uint32_t tiles_of(const Plan& plan, const Numerics& numerics);

}  // namespace spillway::trainer
