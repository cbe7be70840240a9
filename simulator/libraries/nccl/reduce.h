// The arithmetic of reductions on the CPU, in the order of the ranks, so that every rank computes the same
// bits. 16-bit and 8-bit floats are added up in single precision and rounded once.
//
// Thread-safety: values. Ownership: the result's buffer is the caller's. Errors: none. Units: elements.
#pragma once
#include <cstdint>
#include <memory>

#include "simulator/libraries/nccl/api/call.h"

namespace spillway::nccl {

// Takes the ranks' parts one after the other, each with as many elements as the result has.
class Accumulator {
 public:
  virtual ~Accumulator() = default;
  // `scalar` multiplies the part, for PreMulSum.
  virtual void add(const void* part, double scalar) = 0;
  // `out` need not be aligned; `ranks` divides an average.
  virtual void finish(void* out, int ranks) = 0;
};

std::unique_ptr<Accumulator> make_accumulator(uint32_t type, Reduction reduction, uint64_t count);

// A scalar of the type at `address`.
double read_scalar(uint32_t type, const void* address);

}  // namespace spillway::nccl
