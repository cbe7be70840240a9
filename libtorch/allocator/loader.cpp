// spillway_torch_install: what has to be right before the shim's virtual table may be used. No LibTorch type
// appears here, because with another LibTorch than the shim was built for their layouts would differ.
#include <string>

#include "base/libtorch_version.h"
#include "base/mutex.h"
#include "libtorch/allocator/core.h"
#include "libtorch/allocator/install.h"
#include "spillway/spillway.h"

namespace spillway::libtorch {
namespace {

constexpr LibTorchVersion kBuiltFor{SPILLWAY_LIBTORCH / 100, SPILLWAY_LIBTORCH % 100};

std::string check_version() {
  const LibTorchVersion process = libtorch_version();
  if (!process.known())
    return "LibTorch is not loaded, or does not say its version: this library is for LibTorch " +
           kBuiltFor.text();
  if (process.major == kBuiltFor.major && process.minor == kBuiltFor.minor) return "";
  return "the process runs LibTorch " + process.text() + " and this library is for LibTorch " +
         kBuiltFor.text() + ": install the Spillway built for it";
}

Mutex<LockOrder::kShimInstall> mutex;
bool installed SPILLWAY_GUARDED_BY(mutex) = false;
std::string error SPILLWAY_GUARDED_BY(mutex);

}  // namespace
}  // namespace spillway::libtorch

extern "C" SPILLWAY_API int spillway_torch_install(void) {
  using namespace spillway::libtorch;
  const spillway::Locked lock(mutex);
  if (installed) return 0;
  error = check_version();
  if (error.empty()) error = load_core();
  if (error.empty()) error = install_allocator();
  installed = error.empty();
  return installed ? 0 : 1;
}

extern "C" SPILLWAY_API const char* spillway_torch_error(void) {
  const spillway::Locked lock(spillway::libtorch::mutex);
  return spillway::libtorch::error.c_str();
}
