// The state of the random generators, as host tensors: part of the undo log, of recompute and of a
// checkpoint, and handed from device to device.
//
// Thread-safety: each generator is locked while it is read or set. Nothing here allocates device memory.
#pragma once
#include "trainer/libtorch.h"

namespace spillway::trainer {

class RandomState {
 public:
  // The CPU's generator and, for CUDA devices, one a device.
  static RandomState of(const std::vector<at::Device>& devices);
  static RandomState of(at::Device device) { return of(std::vector<at::Device>{device}); }
  static RandomState from_tensors(std::vector<at::Tensor> tensors, at::Device device);
  static RandomState from_tensors(std::vector<at::Tensor> tensors, const std::vector<at::Device>& devices);
  static void seed(const std::vector<at::Device>& devices, uint64_t seed);

  void restore() const;
  // Whether `device` draws the same numbers from both states.
  bool draws_as(const RandomState& other, at::Device device) const;
  // How far a GPU's generator went from `earlier` to here; nothing for a CPU's, which cannot be set forward.
  std::optional<uint64_t> distance_from(const RandomState& earlier, at::Device device) const;
  // REQUIRES: a GPU.
  RandomState further(at::Device device, uint64_t distance) const;
  const std::vector<at::Device>& devices() const { return devices_; }
  const std::vector<at::Tensor>& tensors() const { return tensors_; }  // the CPU's first

 private:
  const at::Tensor& of_device(at::Device device) const;

  std::vector<at::Device> devices_;  // whose generators the tensors are; the CPU first
  std::vector<at::Tensor> tensors_;
};

// One stream of random numbers over devices: `device` goes on where `home` is, and `home` goes on after it.
// So what is drawn does not depend on where a layer lies, among devices of one kind.
class BorrowedRandomState {
 public:
  BorrowedRandomState(at::Device home, at::Device device);
  ~BorrowedRandomState();
  BorrowedRandomState(const BorrowedRandomState&) = delete;

 private:
  const at::Device home_, device_;
};

// Sets a state for its lifetime and then brings the present one back.
class RandomStateGuard {
 public:
  explicit RandomStateGuard(const RandomState& state);
  ~RandomStateGuard() { present_.restore(); }
  RandomStateGuard(const RandomStateGuard&) = delete;

 private:
  RandomState present_;
};

}  // namespace spillway::trainer
