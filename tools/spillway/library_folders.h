// Where Spillway's libraries may be, and lists of paths in the environment.
//
// Thread-safety: any thread. Errors: no folder where this program's own place is not known.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace spillway::tools {

// $SPILLWAY_LIB_DIR alone, or those of a build folder and of an installation.
std::vector<std::filesystem::path> library_folders();
// "value:what the variable holds".
std::string put_in_front(const char* name, const std::string& value);

}  // namespace spillway::tools
