// The TOML form of the configuration. In a unit of its own: toml++ is most of its compile time.
#include <stdexcept>
// Some malformed files fail an assertion of toml++'s parser: that is an error of the file, not of the
// program.
[[noreturn]] static void reject_file() {
  throw std::invalid_argument("the file is malformed");
}
#define TOML_ASSERT(condition) ((condition) ? void() : reject_file())
#include <toml++/toml.h>

#include <algorithm>
#include <cstdio>
#include <sstream>
#include <vector>

#include "simulator/cards/edit_distance.h"
#include "simulator/driver/entry/errors.h"
#include "simulator/driver/machine/config.h"
#include "simulator/driver/process/faults.h"

namespace spillway::simulator {
namespace {

// Reads the keys of one table. The first thing that is wrong is kept, and nothing is read after it.
class Reader {
 public:
  Reader(const toml::table& table, std::string section, const std::string& file)
      : table_(table), section_(std::move(section)), file_(file) {}

  // True when the key is there and right.
  bool bytes(const char* key, uint64_t least, uint64_t& out) {
    const toml::node* node = take(key);
    if (!node) return false;
    std::optional<uint64_t> value;
    if (const auto text = node->value_exact<std::string>()) value = parse_bytes(*text);
    if (const auto number = node->value_exact<int64_t>(); number && *number >= 0) value = *number;
    if (!value || *value < least) {
      wrong(key, *node, "a size of at least " + std::to_string(least) + " bytes such as \"8GiB\"");
      return false;
    }
    out = *value;
    return true;
  }
  void integer(const char* key, int64_t least, int64_t most, uint64_t& out) {
    const toml::node* node = take(key);
    if (!node) return;
    const auto value = node->value_exact<int64_t>();
    if (!value || *value < least || *value > most)
      return wrong(key, *node,
                   "a whole number from " + std::to_string(least) + " to " + std::to_string(most));
    out = static_cast<uint64_t>(*value);
  }
  void number(const char* key, double least, double most, double& out) {
    const toml::node* node = take(key);
    if (!node) return;
    const auto value = node->is_number() ? node->value<double>() : std::nullopt;
    if (!value || !(*value >= least) || !(*value <= most)) {
      std::ostringstream range;
      range << "a number from " << least << " to " << most;
      return wrong(key, *node, range.str());
    }
    out = *value;
  }
  void flag(const char* key, bool& out) {
    const toml::node* node = take(key);
    if (!node) return;
    if (const auto value = node->value_exact<bool>())
      out = *value;
    else
      wrong(key, *node, "true or false");
  }
  std::optional<std::string> text(const char* key) {
    const toml::node* node = take(key);
    if (!node) return std::nullopt;
    auto value = node->value_exact<std::string>();
    if (!value) wrong(key, *node, "a text in quotes");
    return value;
  }
  const toml::table* section(const char* key) {
    const toml::node* node = take(key);
    if (node && !node->is_table()) wrong(key, *node, "a section");
    return node ? node->as_table() : nullptr;
  }
  void reject(const char* key, const std::string& expected) {
    if (const toml::node* node = table_.get(key)) wrong(key, *node, expected);
  }

  // To be called last: a key that nobody asked for is an error.
  std::string finish() {
    for (const auto& [key, node] : table_) {
      if (!error_.empty()) break;
      if (std::find(known_.begin(), known_.end(), key.str()) != known_.end()) continue;
      const auto nearest = std::min_element(known_.begin(), known_.end(), [&](const auto& a, const auto& b) {
        return cards::edit_distance(a, key.str()) < cards::edit_distance(b, key.str());
      });
      error_ = place(node) + "unknown key '" + section_ + std::string(key.str()) + "': did you mean '" +
               section_ + *nearest + "'?";
    }
    return error_;
  }

 private:
  const toml::node* take(const char* key) {
    known_.emplace_back(key);
    return error_.empty() ? table_.get(key) : nullptr;
  }
  std::string place(const toml::node& node) const {
    return file_ + ":" + std::to_string(node.source().begin.line) + ": ";
  }
  void wrong(const char* key, const toml::node& node, const std::string& expected) {
    if (error_.empty()) error_ = place(node) + "'" + section_ + key + "' must be " + expected;
  }

  const toml::table& table_;
  std::string section_;
  const std::string& file_;
  std::vector<std::string> known_;
  std::string error_;
};

std::string read_bandwidth(const toml::table& table, const std::string& file, Bandwidth& out) {
  Reader reader(table, "bandwidth.", file);
  reader.number("h2d", 0.001, 1e6, out.h2d);
  reader.number("d2h", 0.001, 1e6, out.d2h);
  reader.number("d2d", 0.001, 1e6, out.d2d);
  reader.number("peer", 0.001, 1e6, out.peer);
  return reader.finish();
}

std::string latency_error(const std::string& file, const toml::node& node, const std::string& name,
                          const std::string& what) {
  return file + ":" + std::to_string(node.source().begin.line) + ": 'latency_ns." + name + "' " + what;
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

std::string read_latencies(const toml::table& table, const std::string& file,
                           std::map<std::string, uint64_t>& out) {
  for (const auto& [key, node] : table) {
    const std::string name(key.str());
    const auto value = node.value_exact<int64_t>();
    if (find_configurable(name) == Function::kCount)
      return latency_error(file, node, name,
                           "is no driver function that the simulator implements: did you mean '" +
                               nearest_function(name) + "'?");
    if (!value || *value < 0 || *value > int64_t{1000000000000})
      return latency_error(file, node, name, "must be a whole number of ns up to 10^12");
    out[name] = static_cast<uint64_t>(*value);
  }
  return "";
}

std::string read_faults(const toml::table& table, const std::string& file, FaultPlan& out) {
  Reader reader(table, "fail.", file);
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
void read_card(Reader& reader, Config& config) {
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
  uint64_t multiprocessors = static_cast<uint64_t>(config.card.multiprocessors);
  reader.integer("multiprocessors", 1, 1024, multiprocessors);
  config.card.multiprocessors = static_cast<int>(multiprocessors);
}

std::string read_machine(const toml::table& table, const std::string& file, Config& config) {
  Reader reader(table, "", file);
  read_card(reader, config);
  reader.bytes("capacity", kGranularity, config.capacity_bytes);
  uint64_t devices = static_cast<uint64_t>(config.devices);
  reader.integer("devices", 1, kMaxDevices, devices);
  config.devices = static_cast<int>(devices);
  if (const auto values = reader.text("values")) {
    if (!set_values(*values, config)) reader.reject("values", "\"zeros\", \"random\" or \"compute\"");
  }
  if (const auto masks = reader.text("masks")) {
    if (!set_masks(*masks, config)) reader.reject("masks", "\"all\" or \"none\"");
  }
  reader.flag("overheads", config.overheads);
  if (uint64_t bytes = 0; reader.bytes("context_bytes", 0, bytes)) config.context_bytes = bytes;
  reader.flag("poison", config.poison);
  reader.flag("peer_access", config.peer_access);
  reader.integer("call_ns", 1, 1000000000, config.call_ns);
  reader.integer("kernel_ns", 0, 1000000000000, config.kernel_ns);
  std::string inner;
  if (const auto* section = reader.section("bandwidth"))
    inner = read_bandwidth(*section, file, config.bandwidth);
  if (const auto* section = reader.section("latency_ns"); section && inner.empty())
    inner = read_latencies(*section, file, config.latency_ns);
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
