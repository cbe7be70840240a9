#include "libtorch/plugin/libtorch_version.h"

#include <dlfcn.h>

namespace spillway::libtorch {

void* loaded_symbol(const char* library, const char* name) {
  if (void* symbol = dlsym(RTLD_DEFAULT, name)) return symbol;
  // Python loads its extensions, and so LibTorch, outside the global scope.
  void* handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
  if (handle == nullptr) return nullptr;
  void* symbol = dlsym(handle, name);
  dlclose(handle);
  return symbol;
}

LibTorchVersion libtorch_version() {
  auto version = reinterpret_cast<uint64_t (*)()>(loaded_symbol("libtorch_cpu.so", "aoti_torch_abi_version"));
  if (version == nullptr) return {};
  const uint64_t packed = version();
  return {packed >> 56, (packed >> 48) & 0xff};
}

}  // namespace spillway::libtorch
