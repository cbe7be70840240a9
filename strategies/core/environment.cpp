#include "strategies/core/environment.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "allocator/tiling/block.h"

namespace spillway {
namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

std::string_view trim(std::string_view text) {
  const auto space = [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; };
  while (!text.empty() && space(text.front())) text.remove_prefix(1);
  while (!text.empty() && space(text.back())) text.remove_suffix(1);
  return text;
}

// "%p" is the process id, so that several processes do not share a file.
std::string with_process_id(std::string path) {
  const size_t at = path.find("%p");
  return at == std::string::npos ? path : path.replace(at, 2, std::to_string(::getpid()));
}

// By their names; the program's own come last.
auto flags_of(Environment* environment) {
  return std::to_array<std::pair<const char*, bool*>>({
#define SPILLWAY_STRATEGY(name, maker) {#name, &environment->name},
#include "strategies/core/built_in.inc"
      {"registered", &environment->registered}});
}

}  // namespace

bool parse_bytes(std::string_view text, uint64_t* bytes, std::string* error) {
  const std::string value(trim(text));
  *bytes = 0;
  if (value.empty()) return true;
  static constexpr std::array<std::pair<const char*, double>, 10> kUnits{{{"", 1},
                                                                          {"b", 1},
                                                                          {"kib", 1024.0},
                                                                          {"mib", 1048576.0},
                                                                          {"gib", 1073741824.0},
                                                                          {"tib", 1099511627776.0},
                                                                          {"kb", 1e3},
                                                                          {"mb", 1e6},
                                                                          {"gb", 1e9},
                                                                          {"tb", 1e12}}};
  double amount = 0;
  const auto [end, failed] =
      std::from_chars(value.data(), value.data() + value.size(), amount, std::chars_format::fixed);
  if (failed == std::errc() && std::isfinite(amount) && amount >= 0) {
    const std::string unit = lower(trim({end, value.data() + value.size()}));
    for (const auto& [name, factor] : kUnits) {
      if (unit != name) continue;
      if (amount * factor >= 0x1p62 || (amount > 0 && amount * factor < 1)) break;
      *bytes = static_cast<uint64_t>(amount * factor);
      return true;
    }
  }
  *error = "'" + value + "' is no amount of memory: write a number with B, KiB, MiB, GiB or TiB, as in 8GiB";
  return false;
}

bool parse_nvme(std::string_view text, std::string* folder, uint64_t* bytes, std::string* error) {
  constexpr uint64_t kPage = kPageBytes;
  folder->clear();
  *bytes = 0;
  if (trim(text).empty()) return true;
  const size_t colon = text.rfind(':');
  uint64_t size = 0;
  std::string why;
  if (colon == std::string_view::npos || colon == 0)
    why = "a folder and a size with a colon between are needed";
  else if (text.find('\0') != std::string_view::npos)
    why = "no folder's name has a zero byte";
  else if (parse_bytes(text.substr(colon + 1), &size, &why) && size < kPage)
    why = "the size must be 2 MiB at least";
  if (!why.empty()) {
    *error = "'" + std::string(text) + "': " + why + ", as in /scratch:200GiB";
    return false;
  }
  *folder = text.substr(0, colon);
  *bytes = size;
  return true;
}

bool parse_slowdown(std::string_view text, double* factor, std::string* error) {
  const std::string value(trim(text));
  *factor = 0;
  if (lower(value) == "none") return true;
  const auto [end, failed] =
      std::from_chars(value.data(), value.data() + value.size(), *factor, std::chars_format::fixed);
  const bool whole = failed == std::errc() && end == value.data() + value.size();
  if (whole && std::isfinite(*factor) && *factor >= 1) return true;
  *error = "'" + value +
           "' is no factor by which a program may become slower: write 1 or more, as in 1.5, or none";
  return false;
}

bool parse_strategies(std::string_view text, Environment* out, std::string* error) {
  if (trim(text).empty()) return true;
  Environment chosen = *out;
  const auto known = flags_of(&chosen);
  for (const auto& [name, flag] : known) *flag = false;
  bool named = false;
  for (size_t at = 0; at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    const std::string name(trim(text.substr(at, comma - at)));
    at = comma + 1;
    named |= !name.empty();
    bool found = name.empty() || name == "none";
    for (const auto& [known_name, flag] : known) {
      if (name != known_name) continue;
      *flag = true;
      found = true;
    }
    if (found) continue;
    *error = "SPILLWAY_STRATEGIES: there is no strategy '" + name + "'; known are ";
    for (const auto& [known_name, flag] : known) *error += std::string(known_name) + ", ";
    *error += "none; \"registered\" are the program's own";
    return false;
  }
  if (!named) {
    *error = "SPILLWAY_STRATEGIES: '" + std::string(text) + "' names no strategy; \"none\" means none";
    return false;
  }
  *out = chosen;
  return true;
}

bool parse_stacks(std::string_view text, std::optional<uint64_t>* interval_bytes, std::string* error) {
  constexpr uint64_t kLeast = 4 << 10;
  if (text == "none") {
    *interval_bytes = std::nullopt;
    return true;
  }
  uint64_t bytes = 0;
  std::string wrong;
  if (text != "all" && (!parse_bytes(text, &bytes, &wrong) || bytes < kLeast || bytes >> 32 != 0)) {
    *error = "'" + std::string(text) + "' is not all, none, or a size from 4KiB to 4GiB";
    return false;
  }
  *interval_bytes = bytes;
  return true;
}

bool parse_handles(std::string_view text, HandleRule* rule, std::string* error) {
  const size_t colon = text.find(':');
  const std::string_view share = colon == std::string_view::npos ? "1" : text.substr(colon + 1);
  HandleRule read;
  std::string wrong;
  const auto [end, broken] = std::from_chars(share.data(), share.data() + share.size(), read.share);
  const bool number = broken == std::errc() && end == share.data() + share.size() && read.share != 0;
  if (!number || !parse_bytes(text.substr(0, colon), &read.most_bytes, &wrong) ||
      read.most_bytes < kPageBytes) {
    *error = "'" + std::string(text) +
             "' is not a size of at least 2MiB and a share of what is free, as in 32MiB:64";
    return false;
  }
  *rule = read;
  return true;
}

bool parse_legacy_ipc(std::string_view text, DriverMemory* whose, std::string* error) {
  const std::string value = lower(trim(text));
  if (value != "off" && value != "pools" && value != "all") {
    *error = "'" + std::string(text) +
             "' is neither off, nor pools (MemPool and CUDA graphs), nor all (every tensor)";
    return false;
  }
  *whose = value == "off"     ? DriverMemory::kNoPools
           : value == "pools" ? DriverMemory::kPrivatePools
                              : DriverMemory::kEveryPool;
  return true;
}

// A number of bytes from the environment; unset: nothing is changed.
static bool read_bytes(const char* name, uint64_t* bytes, std::string* error) {
  const char* text = std::getenv(name);
  if (text == nullptr || parse_bytes(text, bytes, error)) return true;
  *error = std::string(name) + ": " + *error;
  return false;
}

// The same, where unset and 0 are not alike.
static bool read_budget(const char* name, int64_t* bytes, std::string* error) {
  uint64_t read = 0;
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return true;
  if (parse_bytes(text, &read, error)) {
    *bytes = static_cast<int64_t>(read);
    return true;
  }
  *error = std::string(name) + ": " + *error;
  return false;
}

bool read_environment(Environment* out, std::string* error) {
  if (!read_bytes("SPILLWAY_LIMIT", &out->limit_bytes, error) ||
      !read_bytes("SPILLWAY_RESERVE", &out->reserve_bytes, error) ||
      !read_bytes("SPILLWAY_GUARANTEE", &out->guarantee_bytes, error))
    return false;
  const char* reserve = std::getenv("SPILLWAY_RESERVE");
  out->reserves_by_itself = reserve == nullptr || *reserve == '\0';
  constexpr uint64_t kPage = kPageBytes;
  if (out->limit_bytes != 0 && out->limit_bytes < kPage) {
    *error = "SPILLWAY_LIMIT: " + std::to_string(out->limit_bytes) +
             " bytes are less than one page of 2 MiB: is the unit missing, as in 8GiB?";
    return false;
  }
  if (out->limit_bytes != 0 && out->reserve_bytes >= out->limit_bytes) {
    *error = "SPILLWAY_RESERVE: it must be less than SPILLWAY_LIMIT, or PyTorch could have nothing";
    return false;
  }
  if (const char* path = std::getenv("SPILLWAY_TRACE"); path != nullptr)
    out->trace_path = with_process_id(path);
  const char* optional = std::getenv("SPILLWAY_TRACE_OPTIONAL");
  out->trace_needed = optional == nullptr || std::string_view(optional) != "1";
  if (!read_budget("SPILLWAY_HOST_BUDGET", &out->host_budget_bytes, error) ||
      !read_budget("SPILLWAY_PEER_BUDGET", &out->peer_budget_bytes, error))
    return false;
  if (const char* nvme = std::getenv("SPILLWAY_NVME");
      nvme != nullptr && !parse_nvme(nvme, &out->nvme_folder, &out->nvme_bytes, error)) {
    *error = "SPILLWAY_NVME: " + *error;
    return false;
  }
  if (const char* slowdown = std::getenv("SPILLWAY_MAX_SLOWDOWN"); slowdown != nullptr && *slowdown != '\0')
    if (!parse_slowdown(slowdown, &out->most_slowdown.emplace(), error)) {
      *error = "SPILLWAY_MAX_SLOWDOWN: " + *error;
      return false;
    }
  if (const char* stacks = std::getenv("SPILLWAY_STACKS"); stacks != nullptr && *stacks != '\0')
    if (!parse_stacks(stacks, &out->stack_interval_bytes, error)) {
      *error = "SPILLWAY_STACKS: " + *error;
      return false;
    }
  if (const char* handles = std::getenv("SPILLWAY_HANDLES"); handles != nullptr && *handles != '\0')
    if (!parse_handles(handles, &out->handles.emplace(), error)) {
      *error = "SPILLWAY_HANDLES: " + *error;
      return false;
    }
  if (const char* legacy = std::getenv("SPILLWAY_LEGACY_IPC"); legacy != nullptr && *legacy != '\0')
    if (!parse_legacy_ipc(legacy, &out->driver_memory, error)) {
      *error = "SPILLWAY_LEGACY_IPC: " + *error;
      return false;
    }
  const char* strategies = std::getenv("SPILLWAY_STRATEGIES");
  return strategies == nullptr || parse_strategies(strategies, out, error);
}

}  // namespace spillway
