// What requests leave of a card to libraries which ask the driver themselves.
//
// Thread-safety: any thread. Errors: none. Units: bytes.
#pragma once
#include "allocator/allocator.h"
#include "allocator/context.h"

namespace spillway {

// Of each large card; of a small one a 64th. Not of a simulated one whose libraries take nothing.
inline void leave_to_libraries(Allocator& allocator, uint64_t bytes) noexcept {
  allocator.context().left_to_libraries.store(bytes);
}

}  // namespace spillway
