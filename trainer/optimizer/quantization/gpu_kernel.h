// The kernel of blockwise_update.h on a card: compiled once for a kind of card, loaded once on each card, and
// launched on its current stream.
//
// On a simulated card nothing is compiled: the launch declares what it reads and writes, and where the card
// computes, the kernel's functions do it on a processor (update_blocks_by_lanes).
//
// Thread-safety: one thread. Ownership: a loaded kernel stays for the life of the process. Errors: `make`
// says why there is none; `update` throws c10::Error where the driver refuses the launch, and allocates
// nothing.
#pragma once
#include <memory>
#include <string>

#include "trainer/libtorch.h"
#include "trainer/optimizer/quantization/blockwise_adamw.h"
#include "trainer/runtime/device_code.h"

namespace spillway::trainer {

// Its source, for whoever compiles it.
DeviceSource blockwise_source();
inline constexpr const char* kBlockwiseKernel = "spillway_update_blocks";

class BlockwiseKernel {
 public:
  virtual ~BlockwiseKernel() = default;
  virtual void update(const BlockwiseUpdate& of) const = 0;

  static std::unique_ptr<BlockwiseKernel> make(at::Device device, NoKernel* why_not);
  // As a real card has it, whatever the driver is, and loaded anew; `table` is borrowed. Where no context is
  // current, the card's primary one is made so.
  static std::unique_ptr<BlockwiseKernel> make_compiled(const driver::Table& table, at::Device device,
                                                        NoKernel* why_not);
};

}  // namespace spillway::trainer
