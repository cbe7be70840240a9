// The other processes on a device, as the ledger shows them.
//
// Thread-safety: any thread. Errors: none; who takes no part in the ledger is not seen. Units: bytes.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "driver/table.h"

namespace spillway {

struct Neighbour {
  uint64_t process = 0;  // its id
  uint64_t held_bytes = 0, cached_bytes = 0;
  std::string program;  // its command line
};

// Largest first; at most 64. Where none is seen and a process of the ledger has not shown yet what it holds,
// looks again for so long at `most`.
std::vector<Neighbour> neighbours_on(const driver::Table& table, int device,
                                     std::chrono::milliseconds most = {});

}  // namespace spillway
