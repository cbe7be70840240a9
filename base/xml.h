// Text within XML, of a file or of a picture.
//
// Thread-safety: pure. Errors: none; characters that XML has no way to write are left out, and
// bytes that are part of no character become U+FFFD.
#pragma once
#include <string>

namespace spillway {

// What is markup is written as text. Also for attributes in double quotes.
std::string xml(const std::string& text);

}  // namespace spillway
