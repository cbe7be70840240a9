// How often the kernels of a matrix product read an operand from memory, beyond the L2 cache.
//
// A product of M x N in tiles of T x T reads its left operand N/T times and its right one M/T times (CUTLASS,
// "Efficient GEMM in CUDA", whose recommended tiles are 128 x 128 and 256 x 128). Each multiprocessor works
// on one tile at a time. Those under way together lie in a block that is as square as the result allows, and
// share its rows and columns, which the cache then has. Assumed: the cache keeps lines of host memory as it
// does others, and an operand of up to half of its size from one such block of tiles to the next.
//
// Thread-safety: pure. Errors: none. Units: bytes; rows and columns of the result.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>

namespace spillway {

inline constexpr double kProductTile = 128;

struct ProductOperand {
  uint64_t bytes = 0;
  double own = 0;    // the rows, of a right operand the columns, that it has of the result
  double other = 0;  // the columns or rows for which it is read again; 0: it is no operand of a product
};

struct ProductCard {
  double multiprocessors = 1, cache_bytes = 0;
};

// At least 1.
inline double product_reads(const ProductOperand& operand, const ProductCard& card,
                            double tile = kProductTile) {
  if (operand.other <= 0 || card.multiprocessors < 1 ||
      static_cast<double>(operand.bytes) <= card.cache_bytes / 2)
    return 1;
  const double rows = std::ceil(operand.own / tile), columns = std::ceil(operand.other / tile);
  const double high =
      std::min(rows, card.multiprocessors / std::min(columns, std::sqrt(card.multiprocessors)));
  return columns / std::min(columns, card.multiprocessors / high);
}

}  // namespace spillway
