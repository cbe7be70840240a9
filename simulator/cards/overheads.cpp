#include "simulator/cards/overheads.h"

#include <algorithm>

namespace spillway::cards {
namespace {

#define SPILLWAY_OVERHEAD(row, major, base_mib, kib_per_thread, certainty) \
  Overhead{row, uint64_t{base_mib} << 20, (kib_per_thread) * 1024.0, major, Certainty::certainty},
constexpr Overhead kOverheads[] = {
#include "simulator/cards/overheads.inc"
};
#undef SPILLWAY_OVERHEAD

uint64_t resident_threads(const Card& card) {
  const Architecture* architecture = find_architecture(card.major, card.minor);
  return architecture ? static_cast<uint64_t>(card.multiprocessors) *
                            static_cast<uint64_t>(architecture->threads_per_multiprocessor)
                      : 0;
}

}  // namespace

std::span<const Overhead> overheads() {
  return kOverheads;
}

const Overhead* find_overhead(std::string_view row, int major) {
  const auto find = [row](int capability) {
    return std::find_if(std::begin(kOverheads), std::end(kOverheads),
                        [&](const Overhead& known) { return known.row == row && known.major == capability; });
  };
  const auto* found = find(major);
  if (found == std::end(kOverheads)) found = find(0);
  return found == std::end(kOverheads) ? nullptr : found;
}

uint64_t bytes_of(const Overhead& overhead, const Card& card) {
  constexpr uint64_t kGranule = uint64_t{2} << 20;
  const auto threads = static_cast<double>(resident_threads(card));
  const uint64_t bytes = overhead.base_bytes + static_cast<uint64_t>(overhead.bytes_per_thread * threads);
  return (bytes + kGranule - 1) / kGranule * kGranule;
}

}  // namespace spillway::cards
