// What a process shows of itself in the ledger, and the reading of all that by who is no member.
//
// Thread-safety: plain values; `read_ledger` from any thread. Errors: `read_ledger` says what is wrong; it
// only reads, in bounded time, and trusts nothing: texts may hold any bytes but a zero, numbers any value.
// Units: bytes, nanoseconds of the monotonic clock.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace spillway {

using DeviceUuid = std::array<uint8_t, 16>;

struct LedgerDevice {
  DeviceUuid uuid{};
  char name[64] = "";                         // as the driver calls the card, cut
  uint64_t number = 0;                        // of the card on the machine, from 1 on; 0: not known
  uint64_t device_bytes = 0, free_bytes = 0;  // the card's, as the driver told the process; 0: it did not
  uint64_t held_bytes = 0, cached_bytes = 0;  // by Spillway's allocator: physical pages, the idle among them
  uint64_t spilled_bytes = 0;       // the program's in use, which Spillway's allocator moved to another tier
  uint64_t spilled_peer_bytes = 0;  // of these, on other devices
  uint64_t spilled_nvme_bytes = 0;  // or in a file
  uint64_t framework_held_bytes = 0, framework_cached_bytes = 0;  // by PyTorch's own allocator
  uint64_t native_bytes = 0;  // by driver calls: other allocators and libraries, PyTorch's own among them
  uint64_t spare_bytes = 0;   // that it would give to who asks: idle, and beyond its guarantee
  uint64_t limit_bytes = 0;   // of the process, or a smaller one of Spillway's allocator; 0: none
};

// The process's latest shortage that has ended.
struct LedgerIncident {
  enum : uint64_t { kGranted = 0, kUnwind = 1, kGaveUp = 2 };
  uint64_t number = 0;  // 0: there was none
  uint64_t asked_bytes = 0, gained_bytes = 0, microseconds = 0;
  uint64_t outcome = kGranted;
  uint64_t ended_ns = 0;
  char tried[192] = "";  // strategies with what they gained, cut
};

struct LedgerStrategy {
  char name[32] = "";  // "": none
  uint64_t tried = 0, useful = 0, bytes = 0, microseconds = 0;
};

struct LedgerEntry {
  static constexpr size_t kMostDevices = 16, kMostStrategies = 16;
  char program[96] = "";    // the command line, cut
  char host[64] = "";       // host name, which in a container is the container's
  char container[16] = "";  // the beginning of its id, "" where it is not known
  char phase[32] = "";
  char mode[16] = "";               // "rescue", "replace"
  uint64_t framework_is_known = 0;  // 0: what other allocators than Spillway's hold is not known
  uint64_t guarantee_bytes = 0;     // of each device: below it the process gives nothing; 0: none
  uint64_t failures = 0, rescued = 0, rescued_bytes = 0;
  LedgerIncident incident;
  std::array<LedgerStrategy, kMostStrategies>
      strategies{};  // that were tried; the first ones, if there are more
  uint64_t written_ns = 0;
  uint64_t device_count = 0;  // that the process uses, at most kMostDevices
  std::array<LedgerDevice, kMostDevices> devices{};
};

struct LedgerMember {
  uint64_t process = 0;    // its id
  bool has_entry = false;  // it has shown itself, and the entry was not being written at every look
  LedgerEntry entry;
  uint64_t age_ns = 0;      // of the entry
  uint64_t need_bytes = 0;  // that it asks for now, of `need_device`; 0: nothing
  DeviceUuid need_device{};
};

enum class LedgerRead : uint8_t {
  kRead,
  kNone,     // there is no segment: nobody takes part
  kRefused,  // it cannot be read, or is another user's
  kBroken,   // no ledger, or of another layout; the next member replaces it
};

// The living members of the segment of that name.
LedgerRead read_ledger(const std::string& name, std::vector<LedgerMember>* members, std::string* why_not);

}  // namespace spillway
