#include "tools/spillway/simulator_libraries.h"

#include <cstdlib>
#include <filesystem>

namespace spillway::tools {
namespace {

namespace fs = std::filesystem;

struct Library {
  const char* name;
  bool required;
};
// LibTorch is linked against the first three by DT_RPATH, which beats LD_LIBRARY_PATH: only preloading wins.
constexpr Library kPreloaded[] = {{"libcudart.so.13", true},
                                  {"libcublas.so.13", false},
                                  {"libcublasLt.so.13", false},
                                  {"libcuda.so.1", true}};

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// Folders that may hold sim/: in a build folder and where it is installed.
std::vector<fs::path> candidates() {
  if (const char* folder = std::getenv("SPILLWAY_LIB_DIR"); folder != nullptr && *folder != '\0') {
    std::error_code ignored;
    return {fs::absolute(folder, ignored)};
  }
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  if (error) return {};
  const fs::path root = self.parent_path().parent_path();
  return {root / "lib", root / "lib/spillway"};
}

std::string missing_text(const std::vector<fs::path>& folders) {
  std::string text = "the simulator's libraries are not there; looked for sim/libcuda.so.1 in";
  for (const fs::path& folder : folders) text += " '" + folder.string() + "'";
  return text + ". Build the project, or set SPILLWAY_LIB_DIR to the folder that holds sim/.";
}

}  // namespace

bool find_simulator_libraries(SimulatorLibraries* out, std::string* error) {
  const std::vector<fs::path> folders = candidates();
  for (const fs::path& root : folders) {
    const fs::path folder = root / "sim";
    if (!is_there(folder / "libcuda.so.1")) continue;
    *out = {folder.string(), {}, ""};
    for (const Library& library : kPreloaded) {
      if (is_there(folder / library.name)) {
        out->preload.push_back((folder / library.name).string());
      } else if (library.required) {
        *error = "the simulator is not complete: '" + (folder / library.name).string() + "' is missing";
        return false;
      }
    }
    if (is_there(root / "libspillway_kernels.so")) out->kernels = (root / "libspillway_kernels.so").string();
    return true;
  }
  *error = missing_text(folders);
  return false;
}

}  // namespace spillway::tools
