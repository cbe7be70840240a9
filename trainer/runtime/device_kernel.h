// A kernel with one argument on one card: compiled once for a kind of card, loaded once on each card, and
// launched on its current stream.
//
// On a simulated card nothing is compiled: the launch declares what it reads and writes, takes the time of
// that, and where the card computes, a processor does the work.
//
// Thread-safety: one thread. Ownership: a loaded kernel stays for the life of the process. Errors: `make`
// says why there is none; `launch` throws c10::Error where the driver refuses it, and allocates no device
// memory.
#pragma once
#include <memory>
#include <span>
#include <string>

#include "driver/simulator_control.h"
#include "trainer/libtorch.h"
#include "trainer/runtime/device_code.h"

namespace spillway::trainer {

// Its name, and the source that has it, for whoever compiles it.
struct KernelCode {
  const char* name = nullptr;
  DeviceSource source;
};

// What a kernel reads or writes at an address of the card.
SpillwayRange device_range(const void* address, uint64_t bytes, bool writes);

class DeviceKernel {
 public:
  struct Launch {
    const void* argument = nullptr;  // is copied
    int64_t blocks = 0;
    unsigned threads = 0;                   // of a block
    std::span<const SpillwayRange> ranges;  // that it touches
    uint64_t bytes = 0;                     // that it reads and writes there
    c10::function_ref<void(ptrdiff_t)>
        compute;  // its work on a processor, where addresses are so much larger
  };

  virtual ~DeviceKernel() = default;
  virtual void launch(const Launch& of) const = 0;

  static std::unique_ptr<DeviceKernel> make(const KernelCode& code, at::Device device, NoKernel* why_not);
  // As a real card has it, whatever the driver is, and loaded anew; `table` is borrowed. Where no context is
  // current, the card's primary one is made so.
  static std::unique_ptr<DeviceKernel> make_compiled(const KernelCode& code, const driver::Table& table,
                                                     at::Device device, NoKernel* why_not);
};

// Where the host reads and writes what lies at an address of a card.
template <typename T>
T* moved(T* address, ptrdiff_t offset) {
  return address ? reinterpret_cast<T*>(reinterpret_cast<intptr_t>(address) + offset) : nullptr;
}

}  // namespace spillway::trainer
