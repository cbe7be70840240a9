#include "simulator/driver/machine/behaviour_toml.h"

#include <cstdio>

namespace spillway::simulator {
namespace {

constexpr int kMostNode = 1023;  // as Linux has them

void read_version(TomlReader& reader, int& out) {
  const auto text = reader.text("version");
  if (!text) return;
  int major = 0, minor = 0;
  char rest = 0;
  if (std::sscanf(text->c_str(), "%2d.%1d%c", &major, &minor, &rest) == 2)
    out = major * 1000 + minor * 10;
  else
    reader.reject("version", "a version of CUDA, such as \"12.8\"");
}

void read_legacy_ipc(TomlReader& reader, bool& out) {
  const auto text = reader.text("legacy_ipc");
  if (!text) return;
  if (*text != "allocations" && *text != "none")
    return reader.reject("legacy_ipc", "\"allocations\" (memory of cuMemAlloc) or \"none\"");
  out = *text == "allocations";
}

}  // namespace

std::string read_behaviour(const toml::table& table, const std::string& file, DriverBehaviour& out) {
  TomlReader reader(table, "driver.", file);
  reader.flag("native_atomics", out.native_atomics);
  reader.flag("crashes_on_destroyed", out.crashes_on_destroyed);
  reader.flag("mapping_waits", out.mapping_waits);
  read_legacy_ipc(reader, out.legacy_ipc);
  read_version(reader, out.version);
  reader.integer("host_numa_id", -1, kMostNode, out.host_numa_id);
  reader.integers("host_nodes", 0, kMostNode, out.host_nodes);
  reader.flag("host_location", out.host_location);
  reader.flag("host_access", out.host_access);
  return reader.finish();
}

}  // namespace spillway::simulator
