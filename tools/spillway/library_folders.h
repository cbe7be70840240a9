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
// Whether the folder has `stem`.so or, for some LibTorch, `stem`_2_15.so.
bool is_built_for_some_libtorch(const std::filesystem::path& folder, const std::string& stem);
// "value:what the variable holds".
std::string put_in_front(const char* name, const std::string& value);

}  // namespace spillway::tools
