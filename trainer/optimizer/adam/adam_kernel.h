// The kernel of adam_update.h on a card (trainer/runtime/device_kernel.h).
//
// Thread-safety: one thread. Ownership: a loaded kernel stays for the life of the process. Errors: `make`
// says why there is none; `update` throws c10::Error where the driver refuses the launch, and allocates
// nothing.
#pragma once
#include <memory>

#include "trainer/libtorch.h"
#include "trainer/optimizer/adam/adam_update.h"
#include "trainer/runtime/device_kernel.h"

namespace spillway::trainer {

KernelCode adam_kernel();

class AdamKernel {
 public:
  virtual ~AdamKernel() = default;
  virtual void update(const AdamUpdate& of) const = 0;

  static std::unique_ptr<AdamKernel> make(at::Device device, NoKernel* why_not);
  static std::unique_ptr<AdamKernel> of(std::unique_ptr<DeviceKernel> kernel);  // null: null
};

}  // namespace spillway::trainer
