// What the members of the ledger show, by device: who holds what, and what nobody accounts for.
//
// Thread-safety: plain values, pure functions. Errors: none; what members wrote is not trusted, so that sums
// do not wrap and a device's numbers need not agree. Units: bytes, milliseconds.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "processes/ledger_entry.h"

namespace spillway::tools {

// By whose accounts a process's bytes are known.
enum class HeldBy : uint8_t { kUnknown, kNothing, kFramework, kSpillway, kBoth, kDriverCalls };

struct Share {
  size_t process = 0;  // index into the overview's processes
  uint64_t held_bytes = 0, cached_bytes = 0;
  uint64_t spare_bytes = 0;         // what it would give to a process that asks
  uint64_t spilled_bytes = 0;       // in use beside that, in another tier
  uint64_t spilled_peer_bytes = 0;  // of these, on another device
  uint64_t spilled_nvme_bytes = 0;  // or in a file
  uint64_t limit_bytes = 0;         // 0: none
  HeldBy by = HeldBy::kUnknown;
};

struct DeviceOverview {
  DeviceUuid uuid{};
  std::string name;                           // "": nobody said
  uint64_t number = 0;                        // on the machine, from 1 on; 0: nobody knows
  uint64_t device_bytes = 0, used_bytes = 0;  // as the member that looked last was told; 0: nobody was
  uint64_t held_bytes = 0, cached_bytes = 0;  // by members, as far as they know
  uint64_t other_bytes = 0;                   // in use, and on no member's account
  std::vector<Share> shares;
};

struct Overview {
  std::vector<LedgerMember> processes;  // by process id; texts made fit to print
  std::vector<DeviceOverview> devices;  // by number, those without one last
  uint64_t failures = 0, rescued = 0, rescued_bytes = 0;
};

// How long ago the member's latest incident ended.
uint64_t incident_age_ns(const LedgerMember& member);

Overview overview_of(std::vector<LedgerMember> members);

// "GPU-00112233-4455-6677-8899-aabbccddeeff", as nvidia-smi and CUDA_VISIBLE_DEVICES write it.
std::string uuid_text(const DeviceUuid& uuid);

}  // namespace spillway::tools
