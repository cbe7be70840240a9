// Text for formats that hold UTF-8 alone, and for terminals.
//
// Thread-safety: pure functions. Errors: none.
#pragma once
#include <string>
#include <string_view>

namespace spillway {

// Each byte that is part of no character becomes U+FFFD.
std::string valid_utf8(std::string_view text);

// For a terminal: each control character but the line end and the tab becomes U+FFFD, whatever the text is.
std::string printable(std::string_view text);

}  // namespace spillway
