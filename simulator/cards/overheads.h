// What the driver and NVIDIA's libraries take of a card for themselves, outside what a program allocates.
//
// Thread-safety: constant data. Ownership: static. Errors: an unknown row has no value. Units: bytes.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

#include "simulator/cards/cards.h"

namespace spillway::cards {

// How far a figure can be trusted: NVIDIA says so, it was read on a card, or it follows from a model or was
// never measured.
enum class Certainty { kDocumented, kMeasured, kModelled };

// bytes = base + per_thread × the threads that the card can hold at once.
struct Overhead {
  std::string_view row;  // "context", "cublas.library"
  uint64_t base_bytes;
  double bytes_per_thread;
  int major;  // the compute capability that it is for; 0: every one that has no row of its own
  Certainty certainty;
};

std::span<const Overhead> overheads();
// The row for a compute capability; null when the table lacks it.
const Overhead* find_overhead(std::string_view row, int major);
// What it comes to on a card, in whole granules of 2 MiB as the driver takes them.
uint64_t bytes_of(const Overhead& overhead, const Card& card);

}  // namespace spillway::cards
