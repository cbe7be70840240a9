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

const Overhead* find_row(std::string_view row, int major) {
  const auto* found = std::find_if(std::begin(kOverheads), std::end(kOverheads), [&](const Overhead& known) {
    return known.row == row && known.major == major;
  });
  return found == std::end(kOverheads) ? nullptr : found;
}

}  // namespace

std::span<const Overhead> overheads() {
  return kOverheads;
}

std::optional<uint64_t> overhead_bytes(const Card& card, std::string_view row) {
  constexpr uint64_t kGranule = uint64_t{2} << 20;
  const Overhead* known = find_row(row, card.major);
  if (!known) known = find_row(row, 0);
  if (!known) return std::nullopt;
  const auto threads = static_cast<double>(resident_threads(card));
  const uint64_t bytes = known->base_bytes + static_cast<uint64_t>(known->bytes_per_thread * threads);
  return (bytes + kGranule - 1) / kGranule * kGranule;
}

}  // namespace spillway::cards
