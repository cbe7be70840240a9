#include "simulator/driver/machine/behaviour_toml.h"

namespace spillway::simulator {

std::string read_behaviour(const toml::table& table, const std::string& file, DriverBehaviour& out) {
  TomlReader reader(table, "driver.", file);
  reader.flag("native_atomics", out.native_atomics);
  reader.integer("host_numa_id", -1, 0, out.host_numa_id);
  reader.flag("mapping_waits", out.mapping_waits);
  return reader.finish();
}

}  // namespace spillway::simulator
