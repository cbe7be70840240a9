// Pages of cuMemCreate on the account of native.h: until the program has released every handle and unmapped
// every mapping.
//
// Thread-safety: any thread; what another thread makes at the same address or number, as soon as the driver
// has it free again, is never taken for what was there before. Errors: what is not known changes nothing.
// Units: bytes. Each function is called after the driver has done it.
#pragma once
#include <cstdint>

namespace spillway::interpose {

// The page's, which `page_released` needs: asked before the driver releases it. 0: it is not counted.
uint64_t page_serial(uint64_t handle);
void page_released(uint64_t handle, uint64_t serial);
void page_retained(uint64_t handle);
void page_mapped(uint64_t address, uint64_t bytes, uint64_t handle);

// An unmapping under way: begun before the driver is asked, and finished if it has done it.
class Unmapping {
 public:
  Unmapping(uint64_t address, uint64_t bytes);
  void finish() const;

 private:
  uint64_t address_, bytes_, newest_ = 0;  // of all mappings when it began
};

}  // namespace spillway::interpose
