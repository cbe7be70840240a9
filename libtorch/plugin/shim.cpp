#include "libtorch/plugin/shim.h"

namespace spillway::libtorch {

std::string shim_name(const LibTorchVersion& version) {
  return "libspillway_torch_" + std::to_string(version.major) + "_" + std::to_string(version.minor) + ".so";
}

void* open_shim(const std::string& path, int scope) {
  return dlopen(path.c_str(), RTLD_NOW | RTLD_NODELETE | scope);
}

std::string install_shim(const std::string& path, int scope) {
  void* library = open_shim(path, scope);
  if (library == nullptr) return std::string("the shim cannot be loaded: ") + dlerror();
  const auto install = reinterpret_cast<int (*)()>(dlsym(library, "spillway_torch_install"));
  const auto why_not = reinterpret_cast<const char* (*)()>(dlsym(library, "spillway_torch_error"));
  if (install == nullptr || why_not == nullptr)
    return path + " is no shim of Spillway's: install matching libraries";
  return install() == 0 ? "" : why_not();
}

}  // namespace spillway::libtorch
