// Pages that leave the process: as file descriptors, or as the names of such.
//
// Thread-safety: used under the simulator's lock. Ownership: an imported page belongs to PhysicalMemory and
// is charged to the process that made it. Errors: CUresult. Units: bytes.
#pragma once
#include "simulator/driver/memory/physical.h"

namespace spillway::simulator {

// Says in the device's memory file what the page is, so that another process that opens the file finds it.
// -1: the system refused, else the file.
int describe_in_file(const Page& page);
// Takes that back: who comes later finds no page.
void withdraw_from_file(const Page& page);

// The page of an open memory file whose position is at it. The descriptor stays the caller's.
CUresult import_page(int descriptor, Page** out);

}  // namespace spillway::simulator
