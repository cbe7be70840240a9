// What one of several ranks keeps of a model's parameters: of the rank that has most.
//
// Thread-safety: immutable. Ownership: none. Errors: none. Units: bytes, where no name says elements.
#pragma once
#include <vector>

#include "trainer/plan/estimate.h"
#include "trainer/plan/parameters/optimizer_state.h"
#include "trainer/plan/parameters/parameter_table.h"

namespace spillway::trainer {

class KeptParameters {
 public:
  KeptParameters(const Shape& shape, const std::vector<Parameter>& table);

  // What it updates, of the table's parameters.
  const std::vector<UpdatedParameter>& updated() const { return updated_; }
  // Through which all that ranks exchange passes.
  uint64_t exchange_bytes() const { return exchange_bytes_; }

  // The table with the sizes of what it keeps of the layers' weights, and of the sums of their gradients.
  const std::vector<Parameter>& weights() const { return weights_; }
  const std::vector<Parameter>& gradients() const { return gradients_; }
  // Of a parameter that is on its device, what is in slots aside.
  uint64_t weight_bytes(size_t index) const;
  uint64_t gradient_bytes(size_t index) const;
  // Slots for whole units: weights that come from all ranks, and gradients on their way to them.
  struct Slots {
    uint64_t weights = 0, gradients = 0;
  };
  const Slots& slots() const { return slots_; }

 private:
  void add_slots(const std::vector<Parameter>& table);

  const Numerics numerics_;
  const uint32_t zero_;  // the stage, 0 of a process that is alone
  std::vector<UpdatedParameter> updated_;
  std::vector<Parameter> weights_, gradients_;
  uint64_t exchange_bytes_ = 0;
  Slots slots_;
};

}  // namespace spillway::trainer
