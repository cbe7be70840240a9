// What requests leave of a card to libraries which ask the driver themselves.
//
// Thread-safety: any thread. Errors: none. Units: bytes.
#pragma once
#include "allocator/allocator.h"

namespace spillway {

// Of each large card; of a small one a 64th. Not of a simulated one whose libraries take nothing.
void leave_to_libraries(Allocator& allocator, uint64_t bytes) noexcept;

}  // namespace spillway
