#include "tools/spillway/simulator_libraries.h"

#include <filesystem>
#include <set>
#include <string>

#include "tools/spillway/library_folders.h"

namespace spillway::tools {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRuntime = "libcudart.so.13";
constexpr const char* kDriver = "libcuda.so.1";

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// lib<name>.so.<number>, as every stand-in is called.
bool is_library(const std::string& name) {
  const std::size_t suffix = name.find(".so.");
  return name.starts_with("lib") && suffix != std::string::npos && suffix + 4 < name.size() &&
         name.find_first_not_of("0123456789", suffix + 4) == std::string::npos;
}

// What lies in the folder: the runtime first, because the others are linked against it, and the driver last.
// LibTorch is linked against most of them by DT_RPATH, which beats LD_LIBRARY_PATH: only preloading wins.
std::vector<std::string> preloaded(const fs::path& folder) {
  std::set<std::string> between;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (is_library(name) && name != kRuntime && name != kDriver) between.insert(entry.path().string());
  }
  std::vector<std::string> paths{(folder / kRuntime).string()};
  paths.insert(paths.end(), between.begin(), between.end());
  paths.push_back((folder / kDriver).string());
  return paths;
}

std::string missing_text(const std::vector<fs::path>& folders) {
  std::string text = "the simulator's libraries are not there; looked for sim/libcuda.so.1 in";
  for (const fs::path& folder : folders) text += " '" + folder.string() + "'";
  return text + ". Build the project, or set SPILLWAY_LIB_DIR to the folder that holds sim/.";
}

}  // namespace

bool find_simulator_libraries(SimulatorLibraries* out, std::string* error) {
  const std::vector<fs::path> folders = library_folders();
  for (const fs::path& root : folders) {
    const fs::path folder = root / "sim";
    if (!is_there(folder / kDriver)) continue;
    if (!is_there(folder / kRuntime)) {
      *error = "the simulator is not complete: '" + (folder / kRuntime).string() + "' is missing";
      return false;
    }
    *out = {folder.string(), folder.string(), preloaded(folder), ""};
    if (is_built_for_some_libtorch(root, "libspillway_kernels"))
      out->kernels = (root / "libspillway_kernels.so").string();
    return true;
  }
  *error = missing_text(folders);
  return false;
}

void use_driver_of(std::string_view profile, SimulatorLibraries* libraries) {
  const fs::path folder = fs::path(libraries->folder) / profile;
  if (profile.empty() || !is_there(folder / kDriver)) return;
  libraries->preload.back() = (folder / kDriver).string();
  libraries->search = folder.string() + ":" + libraries->folder;
}

}  // namespace spillway::tools
