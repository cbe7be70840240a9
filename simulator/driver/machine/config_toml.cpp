// The TOML form of the configuration. In a unit of its own: toml++ is most of its compile time.
#include <algorithm>
#include <cstdio>
#include <vector>

#include "simulator/cards/edit_distance.h"
#include "simulator/driver/entry/errors.h"
#include "simulator/driver/machine/behaviour_toml.h"
#include "simulator/driver/machine/config.h"
#include "simulator/driver/machine/toml_reader.h"
#include "simulator/driver/process/faults.h"

namespace spillway::simulator {
namespace {

std::string read_bandwidth(const toml::table& table, const std::string& file, Bandwidth& out) {
  TomlReader reader(table, "bandwidth.", file);
  reader.number("h2d", 0.001, 1e6, out.h2d);
  reader.number("d2h", 0.001, 1e6, out.d2h);
  reader.number("d2d", 0.001, 1e6, out.d2d);
  reader.number("peer", 0.001, 1e6, out.peer);
  reader.number("pin", 0.001, 1e6, out.pin);
  return reader.finish();
}

std::string read_kernels(const toml::table& table, const std::string& file, KernelCosts& out) {
  TomlReader reader(table, "kernels.", file);
  reader.number("tile", 0, 1e6, out.tile);
  reader.number("tflops", 0, 1e6, out.tflops);
  return reader.finish();
}

std::string latency_error(const std::string& file, const toml::node& node, const std::string& name,
                          const std::string& what) {
  return file + ":" + std::to_string(node.source().begin.line) + ": '" + name + "' " + what;
}

// The implemented function whose name is nearest.
std::string nearest_function(const std::string& name) {
  std::string nearest;
  size_t least = SIZE_MAX;
  for (size_t i = 0; i < kFunctions; ++i) {
    const auto function = static_cast<Function>(i);
    const char* candidate = export_of(function).name;
    const size_t distance = cards::edit_distance(candidate, name);
    if (distance >= least || !implemented(function)) continue;
    least = distance;
    nearest = candidate;
  }
  return nearest;
}

std::string read_latencies(const toml::table& table, const std::string& section, const std::string& file,
                           std::map<std::string, uint64_t>& out) {
  for (const auto& [key, node] : table) {
    const std::string name(key.str());
    std::string full = section;
    full.append(".").append(name);
    const auto value = node.value_exact<int64_t>();
    if (find_configurable(name) == Function::kCount)
      return latency_error(file, node, full,
                           "is no driver function that the simulator implements: did you mean '" +
                               nearest_function(name) + "'?");
    if (!value || *value < 0 || *value > int64_t{1000000000000})
      return latency_error(file, node, full, "must be a whole number of ns up to 10^12");
    out[name] = static_cast<uint64_t>(*value);
  }
  return "";
}

std::string read_faults(const toml::table& table, const std::string& file, FaultPlan& out) {
  TomlReader reader(table, "fail.", file);
  reader.integer("call", 0, INT64_MAX, out.call);
  if (const auto name = reader.text("name")) {
    if (find_configurable(*name) == Function::kCount)
      reader.reject("name", "a driver function that the simulator implements, such as \"cuMemCreate\"");
    out.name = *name;
  }
  reader.flag("persistent", out.persistent);
  if (const auto name = reader.text("code")) {
    const auto code = find_error(*name);
    if (!code) reader.reject("code", "the name of an error, such as \"CUDA_ERROR_OUT_OF_MEMORY\"");
    out.code = code.value_or(CUDA_ERROR_OUT_OF_MEMORY);
  }
  reader.integer("seed", 0, INT64_MAX, out.seed);
  reader.number("probability", 0, 1, out.probability);
  return reader.finish();
}

// The card comes first: the keys that follow may say otherwise than it does. SPILLWAY_SIM_CARD has been read
// already and wins.
void read_card(TomlReader& reader, Config& config) {
  if (const auto id = reader.text("card")) {
    const cards::Card* card = cards::find_card(*id);
    if (!card) return reader.reject("card", "the name of a card: " + cards::unknown_card(*id));
    if (config.card.id.empty()) choose_card(*card, config);
  }
  if (const auto text = reader.text("capability")) {
    int major = 0, minor = 0;
    char rest = 0;
    const bool read = std::sscanf(text->c_str(), "%2d.%1d%c", &major, &minor, &rest) == 2;
    if (!read || !cards::find_architecture(major, minor))
      return reader.reject("capability", "a compute capability that a card has, such as \"9.0\"");
    config.card.major = major;
    config.card.minor = minor;
  }
  reader.integer("multiprocessors", 1, 1024, config.card.multiprocessors);
}

std::string read_machine(const toml::table& table, const std::string& file, Config& config) {
  TomlReader reader(table, "", file);
  read_card(reader, config);
  reader.bytes("capacity", kGranularity, config.capacity_bytes);
  reader.integer("devices", 1, kMaxDevices, config.devices);
  if (const auto values = reader.text("values")) {
    if (!set_values(*values, config)) reader.reject("values", "\"zeros\", \"random\" or \"compute\"");
  }
  if (const auto masks = reader.text("masks")) {
    if (!set_masks(*masks, config)) reader.reject("masks", "\"all\" or \"none\"");
  }
  if (const auto watchdog = reader.text("watchdog")) {
    if (!set_watchdog(*watchdog, config)) reader.reject("watchdog", "\"awaited\" or \"free\"");
  }
  reader.flag("overheads", config.overheads);
  if (uint64_t bytes = 0; reader.bytes("context_bytes", 0, bytes)) config.context_bytes = bytes;
  reader.flag("poison", config.poison);
  reader.flag("peer_access", config.peer_access);
  reader.integer("call_ns", 1, 1000000000, config.call_ns);
  reader.integer("kernel_ns", 0, 1000000000000, config.kernel_ns);
  std::string inner;
  if (const auto* section = reader.section("driver")) inner = read_behaviour(*section, file, config.driver);
  if (const auto* section = reader.section("bandwidth"); section && inner.empty())
    inner = read_bandwidth(*section, file, config.bandwidth);
  for (auto& [key, latencies] : {std::pair("latency_ns", &config.latency_ns),
                                 std::pair("latency_per_gib_ns", &config.latency_per_gib_ns),
                                 std::pair("latency_per_mapping_ns", &config.latency_per_mapping_ns)})
    if (const auto* section = reader.section(key); section && inner.empty())
      inner = read_latencies(*section, key, file, *latencies);
  if (const auto* section = reader.section("kernels"); section && inner.empty())
    inner = read_kernels(*section, file, config.kernels);
  if (const auto* section = reader.section("fail"); section && inner.empty())
    inner = read_faults(*section, file, config.fail);
  const std::string outer = reader.finish();
  return outer.empty() ? inner : outer;
}

}  // namespace

std::string apply_toml(std::string_view text, const std::string& name, Config& config) {
  try {
    return read_machine(toml::parse(text, name), name, config);
  } catch (const toml::parse_error& error) {
    return name + ":" + std::to_string(error.source().begin.line) + ": " + std::string(error.description());
  } catch (const std::invalid_argument& error) {
    return name + ": " + error.what();
  }
}

}  // namespace spillway::simulator
