// What a simulated machine is like, read from the environment and from a TOML file.
//
// Thread-safety: plain values. Ownership: none. Errors: a text that says which setting is wrong and how.
// Units: bytes, virtual ns, GB/s (10^9, so bytes per ns).
#pragma once
#include <cuda.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "simulator/cards/cards.h"

namespace spillway::simulator {

constexpr int kMaxDevices = 16;
constexpr uint64_t kGranularity = uint64_t{2} << 20;

struct Bandwidth {
  double h2d = 25, d2h = 25, d2d = 1300, peer = 250;
  double pin = 0;  // at which host memory becomes pinned; 0: at once
};

struct FaultPlan {
  uint64_t call = 0;  // the n-th call from the start; 0: none
  std::string name;   // "": any call that allocates or maps
  bool persistent = false;
  CUresult code = CUDA_ERROR_OUT_OF_MEMORY;
  uint64_t seed = 0;
  double probability = 0;
};

// Where real drivers and machines are less kind than the simulated ones by default.
struct DriverBehaviour {
  int version = 0;             // of CUDA, which the library that is loaded has to be of; 0: whichever it is
  bool native_atomics = true;  // of devices on each other's memory
  int host_numa_id = 0;        // of the host's node that is nearest to a device; -1: none is named
  std::vector<int> host_nodes = {0};  // on which pages can be made
  bool host_location = true;          // pages can be made on the host without a node
  bool host_access = true;            // the CPU can be given access to pages of the host
  // The use of a stream, event or context that was destroyed ends the process, as a segmentation fault.
  bool crashes_on_destroyed = false;
  bool legacy_ipc = true;      // cuIpc* serve memory of cuMemAlloc and events; mapped memory they never serve
  bool mapping_waits = false;  // cuMemUnmap and cuMemSetAccess return when the device has come to rest
};

// What kernels take where their own time is not all of it.
struct KernelCosts {
  double tile = 0;    // of a matrix product, rows and columns; 0: each byte of a factor crosses a link once
  double tflops = 0;  // of PyTorch's operators in null mode; 0: they take no time
};

struct Config {
  // The kind of every card; one that is in no table, like an A100 of 40 GiB, when no card was chosen.
  cards::Card card = {.id = "",
                      .name = "Spillway Simulated GPU (sm_80)",
                      .capacity_bytes = uint64_t{40} << 30,
                      .framebuffer_bytes = uint64_t{40} << 30,
                      .major = 8,
                      .minor = 0,
                      .multiprocessors = 108,
                      .l2_bytes = 40 << 20,
                      .clock_khz = 1410000,
                      .memory_clock_khz = 1215000,
                      .memory_bus_bits = 5120,
                      .copy_engines = 3,
                      .ecc = true,
                      .pcie_generation = 4,
                      .host_gbs = 25,
                      .peer_gbs = 250};
  uint64_t capacity_bytes = card.capacity_bytes;
  int devices = 1;
  bool compute = false;     // values are computed; otherwise null mode
  bool chance = false;      // in null mode the host reads numbers of chance instead of zeros
  bool masks = true;        // in null mode masks that nobody computed are true wherever they decide a size
  bool poison = false;      // new pages hold 0xFF bytes, NaN as floats, instead of zeros
  bool peer_access = true;  // of each device to each other's memory
  // A collective begins when PyTorch's watchdog has seen those before it (process/watchdog.h).
  bool awaits_watchdog = true;
  bool overheads = false;  // what real libraries take is modelled; true when a card was chosen
  std::optional<uint64_t>
      context_bytes;          // what an active context takes of its device; none: the table's, or 0
  uint64_t call_ns = 100;     // of every driver call: lets polling loops end
  uint64_t kernel_ns = 5000;  // of a kernel that was launched as a binary
  Bandwidth bandwidth;
  // By function name: of each call, for each GiB that it is about, for each mapping in its range.
  std::map<std::string, uint64_t> latency_ns, latency_per_gib_ns, latency_per_mapping_ns;
  KernelCosts kernels;
  DriverBehaviour driver;
  FaultPlan fail;
  std::string report_path;  // "%p" in the file's name stands for the process id
};

// "8GiB", "512 MB", "1048576" → bytes.
std::optional<uint64_t> parse_bytes(std::string_view text);
// None when the file cannot be read.
std::optional<std::string> read_file(const char* path);
// Applies the TOML text of a file called `name` to `config`. Returns "" or what is wrong.
std::string apply_toml(std::string_view text, const std::string& name, Config& config);
// Makes every card one of the table: its capacity and bandwidths become the configuration's.
void choose_card(const cards::Card& card, Config& config);
// What the table of overheads says of a row for the configuration's card; without modelled overheads only
// what is documented.
uint64_t overhead_bytes(const Config& config, std::string_view row);
// "zeros", "random" or "compute". False: it is none of them.
bool set_values(std::string_view text, Config& config);
// "all" or "none". False: it is none of them.
bool set_masks(std::string_view text, Config& config);
// "awaited" or "free". False: it is none of them.
bool set_watchdog(std::string_view text, Config& config);
// Applies the profiles of a list such as "typical,virtual-machine", in its order. Returns "" or what is
// wrong.
std::string apply_profiles(std::string_view list, Config& config);
// Defaults, then $SPILLWAY_SIM_PROFILE, then $SPILLWAY_SIM_CONFIG, then the other $SPILLWAY_SIM_ variables.
// Returns "" or what is wrong.
std::string read_config(Config& config);

}  // namespace spillway::simulator
