// The kernel of blockwise_update.h on a card (trainer/runtime/device_kernel.h).
//
// Where a simulated card computes, the kernel's functions do it on a processor (update_blocks_by_lanes).
//
// Thread-safety: one thread. Ownership: a loaded kernel stays for the life of the process. Errors: `make`
// says why there is none; `update` throws c10::Error where the driver refuses the launch, and allocates
// nothing.
#pragma once
#include <memory>

#include "trainer/libtorch.h"
#include "trainer/optimizer/quantization/blockwise_adamw.h"
#include "trainer/runtime/device_kernel.h"

namespace spillway::trainer {

KernelCode blockwise_kernel();

class BlockwiseKernel {
 public:
  virtual ~BlockwiseKernel() = default;
  virtual void update(const BlockwiseUpdate& of) const = 0;

  static std::unique_ptr<BlockwiseKernel> make(at::Device device, NoKernel* why_not);
  static std::unique_ptr<BlockwiseKernel> of(std::unique_ptr<DeviceKernel> kernel);  // null: null
};

}  // namespace spillway::trainer
