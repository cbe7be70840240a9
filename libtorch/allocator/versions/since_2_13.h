// 2.13 added: allocation at an address, and marks where a capture begins and ends. The marks need nothing
// here: Spillway asks the driver which streams are captured, also of captures that no mark tells.
#pragma once
#include "libtorch/allocator/versions/since_2_12.h"

#if SPILLWAY_LIBTORCH >= 213
namespace spillway::libtorch {

class Since2_13 : public Since2_12 {
 public:
  // c10::Error where the address is not free memory that the current stream's pool holds.
  c10::DataPtr allocateWithAddress(size_t bytes, void* address) override;
};

}  // namespace spillway::libtorch
#endif
