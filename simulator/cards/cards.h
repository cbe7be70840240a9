// Real cards: what the driver says of them and what decides which kernels a program chooses.
//
// Thread-safety: constant data. Ownership: static. Errors: an unknown name is a null pointer, and
// `nearest_card` may have a proposal. Units: bytes, kHz, bits, GB/s (10^9).
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace spillway::cards {

// What every card of a compute capability has.
struct Architecture {
  int major, minor;
  int threads_per_multiprocessor, blocks_per_multiprocessor;
  int shared_bytes_per_multiprocessor, shared_bytes_per_block_optin, reserved_shared_bytes_per_block;
  int single_to_double_ratio;
};

struct Card {
  std::string_view id;         // as the command line has it: "a100-40gb"
  std::string_view name;       // as the driver gives it
  uint64_t capacity_bytes;     // cuDeviceTotalMem
  uint64_t framebuffer_bytes;  // what NVML calls total: the driver keeps the difference for itself
  int major, minor;
  int multiprocessors;
  int l2_bytes;
  int clock_khz, memory_clock_khz, memory_bus_bits;
  int copy_engines;
  bool ecc;
  int pcie_generation;
  double host_gbs;  // copies from and to page-locked memory
  double peer_gbs;  // copies to another card: NVLink where there is one, otherwise PCIe
};

std::span<const Card> cards();
// Upper and lower case are one, and dashes, blanks and underscores may be left out: "A100 40GB" is
// "a100-40gb". A part that is no other card's is enough, of the id or of the name: "t4", "4090".
const Card* find_card(std::string_view id);
// The card whose name is nearest, or whose begins so; null where none is near.
const Card* nearest_card(std::string_view id);
// "'a100' is no card of the table: did you mean 'a100-40gb'? ..."
std::string unknown_card(std::string_view id);

// Null for a capability that no card of the table and no Volta has.
const Architecture* find_architecture(int major, int minor);

// Bytes that the memory moves in a second at its clock, in GB/s.
double memory_gbs(const Card& card);
int persisting_l2_bytes(const Card& card);

// The identity of the n-th card of a machine, the same for the driver and for NVML.
std::array<unsigned char, 16> uuid(int index);
std::string uuid_text(int index);  // "GPU-..."
int pci_bus(int index);

}  // namespace spillway::cards
