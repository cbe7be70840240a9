// A device as the key of a map: what the optimizer has once a device.
#pragma once
#include "trainer/libtorch.h"

namespace spillway::trainer {

inline int device_key(at::Device device) {
  return device.is_cuda() ? device.index() : -1;
}
inline int device_key(const at::Tensor& tensor) {
  return device_key(tensor.device());
}

}  // namespace spillway::trainer
