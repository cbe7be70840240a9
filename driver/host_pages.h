// Where pages of host memory can be made that a device can use, found by trial: machines differ in the nodes
// that they name, and drivers in those that they take.
//
// Thread-safety: any thread. Ownership: a trial gives back what it made. Errors: no place and a text. Units:
// bytes.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "driver/table.h"

namespace spillway::driver {

struct HostPlace {
  CUmemLocation location{};
  bool cpu_access = false;  // the pages can be read and written by the CPU at the device's address
};

// The places to try, the best first: the node that the device names, the other nodes with CPUs and memory, as
// `nodes_folder` (sysfs's devices/system/node) shows them, then the host without a node. A node without one
// of the two is left out: drivers refuse it (NVIDIA/nccl#2190) or crash (NVIDIA/nccl#2106). Where the folder
// tells nothing, the named node and node 0, which is that of a machine without NUMA (cuMemCreate).
std::vector<CUmemLocation> host_locations(int named_node, const std::string& nodes_folder);

// Creates, maps and gives back a page of `bytes` at one place after the other until it works. A context has
// to be current. Nothing: `why_not` has a clause for each place, and `may_work_later` says whether memory was
// all that was missing at one of them.
std::optional<HostPlace> find_host_place(const Table& table, CUdevice device, uint64_t bytes,
                                         std::string* why_not, bool* may_work_later);

// Access for the CPU to pages of a place.
CUmemAccessDesc cpu_access_to(const CUmemLocation& place);

}  // namespace spillway::driver
