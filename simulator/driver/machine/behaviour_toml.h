// The section [driver] of a machine's TOML file.
//
// Thread-safety: a pure function. Errors: "" or what is wrong and where. Units: as DriverBehaviour's.
#pragma once
#include <string>

#include "simulator/driver/machine/config.h"
#include "simulator/driver/machine/toml_reader.h"

namespace spillway::simulator {

std::string read_behaviour(const toml::table& table, const std::string& file, DriverBehaviour& out);

}  // namespace spillway::simulator
