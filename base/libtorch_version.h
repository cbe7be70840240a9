// Which LibTorch the process has loaded, without LibTorch's headers.
//
// Thread-safety: any thread. Errors: none; a process without LibTorch has version 0.0.
#pragma once
#include <dlfcn.h>
#include <link.h>

#include <cstdint>
#include <cstdio>
#include <string>

#include "base/this_library.h"

namespace spillway {

struct LibTorchVersion {
  uint64_t major = 0;
  uint64_t minor = 0;
  uint64_t patch = 0;
  bool known() const { return major != 0; }
  // "2.11"
  std::string text() const { return std::to_string(major) + "." + std::to_string(minor); }
};

namespace libtorch_version_details {

constexpr const char* kLibrary = "libtorch_cpu.so";

// The first "2.8.0" of a file, as version.py of a wheel and build-version of an archive have it.
inline LibTorchVersion version_in_file(const char* path) {
  std::FILE* file = std::fopen(path, "re");
  if (file == nullptr) return {};
  LibTorchVersion found;
  char line[256];
  // Some callers hold a lock: a file of some lines, read once.
  // NOLINTNEXTLINE(clang-analyzer-unix.BlockInCriticalSection)
  while (!found.known() && std::fgets(line, sizeof line, file) != nullptr) {
    unsigned major = 0, minor = 0, patch = 0;
    if (std::sscanf(line, "__version__ = '%3u.%3u.%3u", &major, &minor, &patch) == 3 ||
        std::sscanf(line, "%3u.%3u.%3u", &major, &minor, &patch) == 3)
      found = {major, minor, patch};
  }
  std::fclose(file);
  return found;
}

// Beside the folder of the library.
inline LibTorchVersion version_in_files() {
  void* library = dlopen(kLibrary, RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return {};
  link_map* loaded = nullptr;
  const bool placed = dlinfo(library, RTLD_DI_LINKMAP, static_cast<void*>(&loaded)) == 0;
  const std::string path = placed ? loaded->l_name : "";
  dlclose(library);
  const size_t file = path.rfind('/');
  const std::string folder = file == std::string::npos ? "." : path.substr(0, file);
  const LibTorchVersion wheel = version_in_file((folder + "/../version.py").c_str());
  return wheel.known() ? wheel : version_in_file((folder + "/../build-version").c_str());
}

}  // namespace libtorch_version_details

// Asked of a function that every version since 2.9 has, and for an older one of the files that come with it.
inline LibTorchVersion libtorch_version() {
  using namespace libtorch_version_details;
  const auto version = reinterpret_cast<uint64_t (*)()>(loaded_symbol(kLibrary, "aoti_torch_abi_version"));
  if (version == nullptr) return version_in_files();
  const uint64_t packed = version();
  return {packed >> 56, packed >> 48 & 0xff, packed >> 40 & 0xff};
}

}  // namespace spillway
