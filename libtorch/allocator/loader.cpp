// spillway_torch_install: what has to be right before the shim's virtual table may be used. No LibTorch type
// appears here, because with another LibTorch than the shim was built for their layouts would differ.
#include <dlfcn.h>

#include <cstdint>
#include <mutex>
#include <string>

#include "libtorch/allocator/core.h"
#include "libtorch/allocator/install.h"
#include "spillway/spillway.h"

namespace spillway::libtorch {
namespace {

constexpr uint64_t kMajor = 2;
constexpr uint64_t kMinor = 11;

void* libtorch_symbol(const char* name) {
  if (void* symbol = dlsym(RTLD_DEFAULT, name)) return symbol;
  void* library = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return nullptr;
  void* symbol = dlsym(library, name);
  dlclose(library);
  return symbol;
}

std::string check_version() {
  auto version_of = reinterpret_cast<uint64_t (*)()>(libtorch_symbol("aoti_torch_abi_version"));
  if (version_of == nullptr)
    return "LibTorch is not loaded, or older than 2.9: this library is for LibTorch 2.11";
  const uint64_t version = version_of();
  const uint64_t major = version >> 56;
  const uint64_t minor = (version >> 48) & 0xff;
  if (major == kMajor && minor == kMinor) return "";
  return "the process runs LibTorch " + std::to_string(major) + "." + std::to_string(minor) +
         " and this library is for LibTorch 2.11: install the Spillway built for it";
}

std::mutex mutex;
bool installed = false;
std::string error;

}  // namespace
}  // namespace spillway::libtorch

extern "C" SPILLWAY_API int spillway_torch_install(void) {
  using namespace spillway::libtorch;
  const std::lock_guard<std::mutex> lock(mutex);
  if (installed) return 0;
  error = check_version();
  if (error.empty()) error = load_core();
  if (error.empty()) error = install_allocator();
  installed = error.empty();
  return installed ? 0 : 1;
}

extern "C" SPILLWAY_API const char* spillway_torch_error(void) {
  return spillway::libtorch::error.c_str();
}
