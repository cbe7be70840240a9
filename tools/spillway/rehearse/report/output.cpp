#include "tools/spillway/rehearse/report/output.h"

#include <cstring>

#include "base/output_file.h"

namespace spillway::tools {
namespace {

std::string words_of(const std::string& path, int error) {
  return error == 0 ? "" : "'" + path + "' cannot be written: " + std::strerror(error);
}

}  // namespace

std::string check_outputs(const std::vector<std::pair<const char*, std::string>>& outputs) {
  for (const auto& [option, path] : outputs) {
    if (path.empty()) continue;
    if (const std::string wrong = words_of(path, can_write(path)); !wrong.empty())
      return std::string(option) + ": " + wrong;
  }
  return "";
}

std::string write_output(const std::string& path, const std::string& text) {
  return words_of(path, write_text(path, text));
}

}  // namespace spillway::tools
