#include "simulator/cards/cards.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstring>

#include "simulator/cards/edit_distance.h"

namespace spillway::cards {
namespace {

// Page-locked copies reach about 3/4 of what sixteen lanes of a generation carry.
constexpr double host_gbs(int pcie_generation) {
  return pcie_generation == 3 ? 12 : pcie_generation == 4 ? 24 : 50;
}

#define SPILLWAY_CARD(id, name, capacity, framebuffer_mib, major, minor, multiprocessors, l2_kib, clock_mhz, \
                      memory_mhz, bus, engines, ecc, pcie, peer)                                             \
  Card{id,                                                                                                   \
       name,                                                                                                 \
       capacity,                                                                                             \
       uint64_t{framebuffer_mib} << 20,                                                                      \
       major,                                                                                                \
       minor,                                                                                                \
       multiprocessors,                                                                                      \
       (l2_kib) * 1024,                                                                                      \
       (clock_mhz) * 1000,                                                                                   \
       (memory_mhz) * 1000,                                                                                  \
       bus,                                                                                                  \
       engines,                                                                                              \
       ecc,                                                                                                  \
       pcie,                                                                                                 \
       host_gbs(pcie),                                                                                       \
       peer},
constexpr Card kCards[] = {
#include "simulator/cards/cards.inc"
};
#undef SPILLWAY_CARD

// CUDA C++ Programming Guide, "Technical Specifications per Compute Capability" and "Arithmetic
// Instructions".
constexpr Architecture kArchitectures[] = {
    {7, 0, 2048, 32, 98304, 98304, 0, 2},       {7, 5, 1024, 16, 65536, 65536, 0, 32},
    {8, 0, 2048, 32, 167936, 166912, 1024, 2},  {8, 6, 1536, 16, 102400, 101376, 1024, 64},
    {8, 9, 1536, 24, 102400, 101376, 1024, 64}, {9, 0, 2048, 32, 233472, 232448, 1024, 2},
    {10, 0, 2048, 32, 233472, 232448, 1024, 2}, {12, 0, 1536, 24, 102400, 101376, 1024, 64},
};

std::string plain(std::string_view id) {
  std::string text;
  for (const char c : id)
    if (std::isalnum(static_cast<unsigned char>(c)))
      text += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

}  // namespace

std::span<const Card> cards() {
  return kCards;
}

const Card* find_card(std::string_view id) {
  const std::string wanted = plain(id);
  for (const Card& card : kCards)
    if (plain(card.id) == wanted || plain(card.name) == wanted) return &card;
  const Card* only = nullptr;
  for (const Card& card : kCards) {
    const bool is_part = wanted.size() > 1 && (plain(card.id).find(wanted) != std::string::npos ||
                                               plain(card.name).find(wanted) != std::string::npos);
    if (!is_part) continue;
    if (only != nullptr) return nullptr;
    only = &card;
  }
  return only;
}

const Card* nearest_card(std::string_view id) {
  constexpr size_t kLongest = 64;  // what is longer is no name
  const std::string wanted = plain(id.substr(0, kLongest));
  for (const Card& card : kCards)
    if (wanted.size() > 1 && plain(card.id).find(wanted) != std::string::npos) return &card;
  const auto distance = [&](const Card& card) { return edit_distance(plain(card.id), wanted); };
  const Card* nearest =
      std::min_element(std::begin(kCards), std::end(kCards),
                       [&](const Card& a, const Card& b) { return distance(a) < distance(b); });
  return distance(*nearest) <= 1 + wanted.size() / 2 ? nearest : nullptr;
}

std::string unknown_card(std::string_view id) {
  const Card* nearest = nearest_card(id);
  std::string text = "'" + std::string(id) + "' is no card of the table" +
                     (nearest ? ": did you mean '" + std::string(nearest->id) + "'?" : ".") + " There are";
  for (const Card& card : kCards) text += " " + std::string(card.id);
  return text;
}

const Architecture* find_architecture(int major, int minor) {
  const auto* found =
      std::find_if(std::begin(kArchitectures), std::end(kArchitectures),
                   [&](const Architecture& known) { return known.major == major && known.minor == minor; });
  return found == std::end(kArchitectures) ? nullptr : found;
}

double memory_gbs(const Card& card) {
  return 2.0 * card.memory_clock_khz * 1e3 * card.memory_bus_bits / 8 / 1e9;
}

// What deviceQuery says of A100 and RTX 3090; for the other cards derived by the second one's share.
int persisting_l2_bytes(const Card& card) {
  if (card.major < 8) return 0;
  return card.major == 8 && card.minor == 0 ? card.l2_bytes / 4 * 3 : card.l2_bytes / 16 * 11;
}

std::array<unsigned char, 16> uuid(int index) {
  std::array<unsigned char, 16> bytes{};
  std::memcpy(bytes.data(), "Spillway-sim-", 13);
  bytes[15] = static_cast<unsigned char>(index);
  return bytes;
}

std::string uuid_text(int index) {
  const auto bytes = uuid(index);
  std::string text = "GPU";
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", bytes[i]);
    text += digits;
  }
  return text;
}

int pci_bus(int index) {
  return 0x10 + index;
}

}  // namespace spillway::cards
