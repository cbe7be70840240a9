#include "trainer/residency/homes/homes.h"

#include <ATen/cuda/PeerToPeerAccess.h>

#include "trainer/residency/copy_stream.h"
#include "trainer/residency/host_tensor.h"

namespace spillway::trainer {

Homes::Homes(const Plan& plan, const std::vector<at::Device>& devices) {
  for (const auto& [device, peer] : plan.peers)
    if (device < devices.size()) peers_.try_emplace(devices[device].index(), devices.at(peer));
}

at::Device Homes::of(Place place, at::Device device) const {
  if (place == Place::kDevice) return device;
  if (place != Place::kPeer) return at::kCPU;
  const auto found = device.is_cuda() ? peers_.find(device.index()) : peers_.end();
  return found == peers_.end() ? device : found->second;
}

at::Tensor home_tensor(at::IntArrayRef sizes, at::ScalarType type, at::Device device, at::Device home) {
  if (!home.is_cuda()) return host_tensor(sizes, type, device);
  at::Tensor tensor = at::empty(sizes, at::device(home).dtype(type));
  if (home != device) at::cuda::get_p2p_access(device.index(), home.index());  // has it opened, once
  // Its block may be one that the peer still computes with, and copies do not wait for that.
  wait_on_host(CopyStream::of(home, Direction::kToDevice).computed());
  return tensor;
}

}  // namespace spillway::trainer
