#include "simulator/driver/machine/config.h"

#include <charconv>
#include <cstdlib>
#include <fstream>

#include "simulator/cards/overheads.h"
#include "simulator/profiles/profiles.h"

namespace spillway::simulator {
namespace {

constexpr uint64_t kMostBytes = uint64_t{1} << 50;

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

std::optional<uint64_t> unit_bytes(std::string_view unit) {
  struct Unit {
    std::string_view name;
    uint64_t bytes;
  };
  static constexpr Unit kUnits[] = {{"", 1},
                                    {"B", 1},
                                    {"kB", 1000},
                                    {"KB", 1000},
                                    {"MB", 1000000},
                                    {"GB", 1000000000},
                                    {"TB", 1000000000000},
                                    {"KiB", uint64_t{1} << 10},
                                    {"MiB", uint64_t{1} << 20},
                                    {"GiB", uint64_t{1} << 30},
                                    {"TiB", uint64_t{1} << 40}};
  for (const Unit& known : kUnits)
    if (known.name == unit) return known.bytes;
  return std::nullopt;
}

const char* variable(const char* name) {
  const char* value = std::getenv(name);
  return value && *value ? value : nullptr;
}

std::string apply_environment(Config& config) {
  if (const char* text = variable("SPILLWAY_SIM_CAPACITY")) {
    const auto bytes = parse_bytes(text);
    if (!bytes || *bytes < kGranularity)
      return std::string("SPILLWAY_SIM_CAPACITY is '") + text +
             "': write a size of at least 2MiB such as 8GiB, 16GB or a number of bytes";
    config.capacity_bytes = *bytes;
  }
  if (const char* text = variable("SPILLWAY_SIM_DEVICES")) {
    const std::string_view view = text;
    int count = 0;
    const auto [end, error] = std::from_chars(view.data(), view.data() + view.size(), count);
    if (error != std::errc() || end != view.data() + view.size() || count < 1 || count > kMaxDevices)
      return std::string("SPILLWAY_SIM_DEVICES is '") + text + "': write a number from 1 to " +
             std::to_string(kMaxDevices);
    config.devices = count;
  }
  if (const char* text = variable("SPILLWAY_SIM_VALUES")) {
    if (!set_values(text, config))
      return std::string("SPILLWAY_SIM_VALUES is '") + text + "': write zeros, random or compute";
  }
  if (const char* text = variable("SPILLWAY_SIM_MASKS")) {
    if (!set_masks(text, config))
      return std::string("SPILLWAY_SIM_MASKS is '") + text + "': write all or none";
  }
  if (const char* text = variable("SPILLWAY_SIM_WATCHDOG")) {
    if (!set_watchdog(text, config))
      return std::string("SPILLWAY_SIM_WATCHDOG is '") + text + "': write awaited or free";
  }
  if (const char* text = variable("SPILLWAY_SIM_OVERHEADS")) {
    const std::string_view view = text;
    if (view != "on" && view != "off")
      return std::string("SPILLWAY_SIM_OVERHEADS is '") + text + "': write on or off";
    config.overheads = view == "on";
  }
  if (const char* text = variable("SPILLWAY_SIM_REPORT")) config.report_path = text;
  return "";
}

}  // namespace

std::optional<uint64_t> parse_bytes(std::string_view text) {
  text = trimmed(text);
  double number = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (error != std::errc() || !(number >= 0)) return std::nullopt;
  const auto unit = unit_bytes(trimmed(text.substr(end - text.data())));
  if (!unit || number * static_cast<double>(*unit) > static_cast<double>(kMostBytes)) return std::nullopt;
  return static_cast<uint64_t>(number * static_cast<double>(*unit));
}

void choose_card(const cards::Card& card, Config& config) {
  // What a copy within the card moves in a second, each byte counted once: an H200 copies 2.1 TB/s at 4.9
  // TB/s.
  constexpr double kCopyShare = 0.43;
  config.card = card;
  config.overheads = true;
  config.capacity_bytes = card.capacity_bytes;
  config.bandwidth = {.h2d = card.host_gbs,
                      .d2h = card.host_gbs,
                      .d2d = cards::memory_gbs(card) * kCopyShare,
                      .peer = card.peer_gbs};
}

uint64_t overhead_bytes(const Config& config, std::string_view row) {
  const cards::Overhead* known = cards::find_overhead(row, config.card.major);
  const bool charged = known && (config.overheads || known->certainty == cards::Certainty::kDocumented);
  return charged ? cards::bytes_of(*known, config.card) : 0;
}

std::optional<std::string> read_file(const char* path) {
  std::ifstream file(path, std::ios::binary);
  std::string text;
  char block[1 << 14];
  while (file.read(block, sizeof block) || file.gcount() > 0)
    text.append(block, static_cast<size_t>(file.gcount()));
  if (!file.eof()) return std::nullopt;
  return text;
}

bool set_values(std::string_view text, Config& config) {
  if (text != "zeros" && text != "random" && text != "compute") return false;
  config.compute = text == "compute";
  config.chance = text == "random";
  return true;
}

bool set_masks(std::string_view text, Config& config) {
  if (text != "all" && text != "none") return false;
  config.masks = text == "all";
  return true;
}

bool set_watchdog(std::string_view text, Config& config) {
  if (text != "awaited" && text != "free") return false;
  config.awaits_watchdog = text == "awaited";
  return true;
}

std::string apply_profiles(std::string_view list, Config& config) {
  for (const std::string_view name : profiles::names_in(list)) {
    const profiles::Profile* profile = profiles::find(name);
    if (!profile) return "SPILLWAY_SIM_PROFILE: " + profiles::unknown_profile(name);
    const std::string wrong = apply_toml(profile->text, std::string(name) + ".toml", config);
    if (!wrong.empty()) return wrong;
  }
  return "";
}

std::string read_config(Config& config) {
  if (const char* id = variable("SPILLWAY_SIM_CARD")) {
    const cards::Card* card = cards::find_card(id);
    if (!card) return "SPILLWAY_SIM_CARD: " + cards::unknown_card(id);
    choose_card(*card, config);
  }
  if (const char* list = variable("SPILLWAY_SIM_PROFILE")) {
    const std::string wrong = apply_profiles(list, config);
    if (!wrong.empty()) return wrong;
  }
  if (const char* path = variable("SPILLWAY_SIM_CONFIG")) {
    const std::optional<std::string> text = read_file(path);
    if (!text) return std::string("SPILLWAY_SIM_CONFIG: the file ") + path + " cannot be read";
    const std::string wrong = apply_toml(*text, path, config);
    if (!wrong.empty()) return wrong;
  }
  return apply_environment(config);
}

}  // namespace spillway::simulator
