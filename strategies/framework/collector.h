// What the framework only keeps for others, as its shim tells the core: tensors that other processes are done
// with, segments of memory pools that nobody uses.
//
// Thread-safety: any thread. Ownership: the collector stays for ever. Errors: none.
#pragma once
#include "strategies/core/core.h"

namespace spillway {

void set_collector(const spillway_collector* collector);
// Whether there may be anything. Makes no CUDA call.
bool may_collect(int device);
void collect(int device);

}  // namespace spillway
