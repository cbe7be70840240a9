// Where what a device has no room for lives: on the host, or in the memory of another device, a peer.
//
// Thread-safety: values and, of `home_tensor`, any thread. Ownership: the memory goes with the last tensor
// that has it. Errors: c10::OutOfMemoryError of the host or of the peer.
#pragma once
#include <map>

#include "trainer/libtorch.h"
#include "trainer/plan/plan.h"

namespace spillway::trainer {

class Homes {
 public:
  Homes() = default;  // no device has a peer
  // `devices[i]` is what the plan calls device i.
  Homes(const Plan& plan, const std::vector<at::Device>& devices);

  // Of what `place` says of things on `device`: the CPU, which is the host, a peer, or the device itself.
  at::Device of(Place place, at::Device device) const;

 private:
  std::map<int, at::Device> peers_;  // by device index
};

// Uninitialised memory at home for copies to and from `device`: page-locked on the host. What a peer computed
// with it before is done.
at::Tensor home_tensor(at::IntArrayRef sizes, at::ScalarType type, at::Device device, at::Device home);

}  // namespace spillway::trainer
