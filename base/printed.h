// printf into a text of any length.
//
// Thread-safety: pure. Errors: none; a pattern that the C library refuses gives an empty text.
#pragma once
#include <string>

namespace spillway {

__attribute__((format(printf, 1, 2))) std::string printed(const char* pattern, ...);

}  // namespace spillway
