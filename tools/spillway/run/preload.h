// The library that `spillway run` preloads: where it is, and which programs the loader lets it into.
//
// Thread-safety: any thread. Errors: a text that says what to do.
#pragma once
#include <string>

namespace spillway::tools {

bool find_preload_library(std::string* path, std::string* error);
// False for a program that runs with other rights than its caller's: the loader preloads nothing into it.
// A command that is not found is left to the start.
bool can_be_preloaded(const std::string& command, std::string* error);

}  // namespace spillway::tools
