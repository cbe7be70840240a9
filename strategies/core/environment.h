// The settings that a process starts with: SPILLWAY_LIMIT, SPILLWAY_RESERVE, SPILLWAY_GUARANTEE,
// SPILLWAY_TRACE, SPILLWAY_TRACE_OPTIONAL, SPILLWAY_STRATEGIES, SPILLWAY_HOST_BUDGET, SPILLWAY_PEER_BUDGET,
// SPILLWAY_NVME, SPILLWAY_MAX_SLOWDOWN, SPILLWAY_STACKS, SPILLWAY_HANDLES, SPILLWAY_LEGACY_IPC.
//
// Thread-safety: pure functions of their text, but for `read_environment`. Errors: a text that says which
// value is wrong and what would be right; nothing is changed then.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "allocator/pages/supply/handle_sizes.h"
#include "allocator/tiling/pool_memory.h"

namespace spillway {

inline constexpr uint64_t kStackIntervalBytes = 1 << 20;

struct Environment {
  uint64_t limit_bytes = 0;        // 0: none
  uint64_t reserve_bytes = 0;      // of each device: what PyTorch's requests leave to others
  bool reserves_by_itself = true;  // nothing says what to leave: Spillway's own requests leave some
  uint64_t guarantee_bytes = 0;    // of each device: other processes' needs take nothing below it
  std::string trace_path;          // "": no trace
  bool trace_needed = true;        // or the process starts without one that cannot be made
  // Of allocated bytes, how many to one whose stack the trace has; 0: every allocation's; nothing: none.
  std::optional<uint64_t> stack_interval_bytes = kStackIntervalBytes;
  // Of pinned host memory, for what is moved off the devices. -1: by what the machine has.
  int64_t host_budget_bytes = -1;
  int64_t peer_budget_bytes = -1;  // of each other device. -1: of those that nobody uses
  std::string nvme_folder;         // of a file for registered blocks
  uint64_t nvme_bytes = 0;         // its size; 0: none
  // By what was moved there; 0: does not matter; nothing: by the device.
  std::optional<double> most_slowdown;
  // How large the driver's allocations are; nothing: large where they can be divided.
  std::optional<HandleRule> handles;
  DriverMemory driver_memory = DriverMemory::kNoPools;  // whose blocks have handles of cuIpcGetMemHandle
  bool registered = true;                               // strategies of the program's own
#define SPILLWAY_STRATEGY(name, maker) bool name = true;
#include "strategies/core/built_in.inc"
};

inline bool takes_stacks(const Environment& environment) {
  return !environment.trace_path.empty() && environment.stack_interval_bytes.has_value();
}

// "8GiB", "512MiB", "1.5GiB", "1000000" (bytes); "" and "0" mean no limit.
bool parse_bytes(std::string_view text, uint64_t* bytes, std::string* error);
// "DIR:SIZE": the last colon divides them; "": no file. Whether the folder can be used is not looked at.
bool parse_nvme(std::string_view text, std::string* folder, uint64_t* bytes, std::string* error);
// A factor of at least 1 ("1.5"), or "none": 0.
bool parse_slowdown(std::string_view text, double* factor, std::string* error);
// A size of at least 4 KiB, "all", or "none".
bool parse_stacks(std::string_view text, std::optional<uint64_t>* interval_bytes, std::string* error);
// "SIZE:SHARE", as "32MiB:64": at most this size, and one such part of what is free; "2MiB": single pages.
bool parse_handles(std::string_view text, HandleRule* rule, std::string* error);
// "off", "pools" (private ones: MemPool, graphs) or "all".
bool parse_legacy_ipc(std::string_view text, DriverMemory* whose, std::string* error);
// Names separated by commas, of the built-in strategies or "registered" (the program's own); "none": none.
bool parse_strategies(std::string_view text, Environment* out, std::string* error);
bool read_environment(Environment* out, std::string* error);

}  // namespace spillway
