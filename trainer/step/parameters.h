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

#include "spillway/trainer/plan/numerics.h"
#include "trainer/libtorch.h"

namespace spillway::trainer {

class Parameters {
 public:
  // `initial` in floats on the host; `devices[i]` is where parameter i goes. Allocates the accumulators.
  Parameters(std::vector<std::string> names, const std::vector<at::Tensor>& initial,
             const std::vector<at::Device>& devices, const Numerics& numerics = {});
  Parameters(const Parameters&) = delete;

  size_t size() const { return values_.size(); }
  const std::string& name(size_t index) const { return names_[index]; }
  at::TensorList values() const { return values_; }
  const at::Tensor& value(size_t index) const { return values_[index]; }
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

  // FNV-1a of all bytes of all parameters, in order.
  uint64_t hash() const;

 private:
  class Hook;
  void attach_hook(size_t index);
  void accumulate(size_t index);

  std::vector<std::string> names_;
  std::vector<at::Tensor> values_, gradients_;
  std::vector<uint32_t> accumulated_;
  uint32_t micro_batch_ = 0;
};

}  // namespace spillway::trainer
