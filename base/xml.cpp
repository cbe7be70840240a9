#include "base/xml.h"

#include "base/utf8.h"

namespace spillway {

std::string xml(const std::string& text) {
  std::string out;
  for (const char c : valid_utf8(text)) {
    if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '&')
      out += "&amp;";
    else if (c == '"')
      out += "&quot;";
    else if (static_cast<unsigned char>(c) >= 0x20 || c == '\n' || c == '\t')
      out += c;
  }
  return out;
}

}  // namespace spillway
