#include "tools/spillway/input_file.h"

#include <filesystem>

namespace spillway::tools {

namespace fs = std::filesystem;

std::string not_a_file(const std::string& path) {
  std::error_code none;
  const fs::file_status status = fs::status(path, none);
  if (!fs::exists(status) || fs::is_regular_file(status) || fs::is_directory(status)) return "";
  return "'" + path +
         "' is read more than once, which a pipe or a device cannot be: write it to a file first";
}

std::string overwritten_input(const std::vector<std::string>& inputs,
                              const std::vector<std::pair<const char*, std::string>>& outputs) {
  for (const auto& [option, path] : outputs)
    for (const std::string& input : inputs) {
      std::error_code none;
      if (!path.empty() && fs::equivalent(path, input, none))
        return std::string(option) + ": '" + path + "' is a file that is read";
    }
  return "";
}

}  // namespace spillway::tools
