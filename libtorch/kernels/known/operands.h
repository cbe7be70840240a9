// Where nothing is computed: what an operator touches, so that its stream takes the time of that. Nothing is
// collected while the simulator would count none.
//
// Thread-safety: a value of its operator's thread. Ownership: none. Errors: none.
#pragma once
#include <ATen/core/ivalue.h>
#include <c10/util/SmallVector.h>

#include <vector>

#include "libtorch/kernels/known/known_operators.h"
#include "libtorch/kernels/simulator.h"
#include "libtorch/products.h"

namespace spillway::kernels {

class Operands {
 public:
  // Before the operator runs: as a rule its inputs are gone afterwards.
  void collect(const KnownOperator& op, const char* name, c10::ArrayRef<const c10::IValue> inputs);
  // When its kernels have been launched.
  void charge(const std::vector<c10::IValue>& results);

 private:
  void add(const at::Tensor& tensor, bool writes, libtorch::Extents extents = {});

  bool wanted_ = false;
  uint64_t bytes_ = 0;
  double operations_ = 0;
  c10::DeviceIndex device_ = -1;
  c10::SmallVector<SpillwayRange, 8> ranges_;
};

}  // namespace spillway::kernels
