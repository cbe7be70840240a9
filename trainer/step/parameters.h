// The parameters and their accumulated gradients, with exactly-once accumulation.
//
// Autograd's fresh gradient of a parameter is added to the accumulator here the moment it is ready, and
// freed. A ledger counts the micro-batches that each accumulator holds, so that a micro-batch whose backward
// was cut off half-way can be run again and reaches only those parameters that have not had it. Nothing of
// the gradients is copied for undo.
//
// Thread-safety: one thread calls; hooks run on autograd's threads and touch only their own parameter.
// Between a failed backward and the next call of anything here, call `settle`. Ownership: owns parameters and
// accumulators. Errors: LibTorch's exceptions; `relocate` is all or nothing for one layer.
#pragma once
#include <cstdint>
#include <memory>

#include "trainer/model/initial_values.h"
#include "trainer/model/weights.h"
#include "trainer/plan/numerics.h"

namespace spillway::trainer {

class Parameters {
 public:
  // `initial` in floats on the host; `devices[i]` is where parameter i goes, and `in_8_bits[i]` how it is
  // stored (empty: in floats). Allocates the accumulators.
  Parameters(std::vector<std::string> names, const InitialValues& initial,
             const std::vector<at::Device>& devices, const Numerics& numerics = {},
             const std::vector<bool>& in_8_bits = {});
  Parameters(const Parameters&) = delete;

  size_t size() const { return values_.size(); }
  const std::string& name(size_t index) const { return names_[index]; }
  at::TensorList values() const { return values_; }
  const at::Tensor& value(size_t index) const { return values_[index]; }
  // nullptr where `value` has the numbers; else it is a leaf that stands for them.
  const Int8Weight* int8(size_t index) const { return int8_[index].defined() ? &int8_[index] : nullptr; }
  Weights weights() const { return {values_, int8_}; }
  const at::Tensor& gradient(size_t index) const { return gradients_[index]; }

  // Gradients to zero, no micro-batch accumulated.
  void clear_gradients();
  // From now on, backward passes are micro-batch `number`.
  void begin_micro_batch(uint32_t number) { micro_batch_ = number; }
  // Waits until no thread of autograd's runs a hook of a pass that failed, and drops fresh gradients that it
  // left.
  void settle();
  // Throws std::logic_error unless every parameter holds exactly `micro_batches`.
  void check_complete(uint32_t micro_batches) const;
  uint32_t accumulated(size_t index) const { return accumulated_[index]; }

  // Moves parameters [first, first + count) and their accumulators to `device`; on an exception none is
  // moved.
  void relocate(size_t first, size_t count, at::Device device);

  // The tensors that hold a parameter: its value, or codes and scales, with the ends of their names.
  std::vector<std::pair<const char*, at::Tensor>> stored(size_t index) const;
  // FNV-1a of all bytes of all parameters, in order.
  uint64_t hash() const;

 private:
  class Hook;
  void attach_hook(size_t index);
  void accumulate(size_t index);

  std::vector<std::string> names_;
  std::vector<at::Tensor> values_, gradients_;
  std::vector<Int8Weight> int8_;
  std::vector<uint32_t> accumulated_;
  uint32_t micro_batch_ = 0;
};

}  // namespace spillway::trainer
