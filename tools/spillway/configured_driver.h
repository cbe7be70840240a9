// Which driver a machine's TOML file asks for.
//
// Thread-safety: plain values. Errors: a file that cannot be read names none; the simulated driver reads it
// too, and says what is wrong with it.
#pragma once
#include <string>

namespace spillway::tools {

// The profile of the driver's version in the file, such as "driver-12.8"; "" where it names no version.
std::string configured_driver(const std::string& path);

}  // namespace spillway::tools
