#include "tools/gpu_probe/driver.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

namespace spillway::probe {
namespace {

int chosen = 0;
CUcontext opened_context = nullptr;

template <typename Function>
void resolve(const char* name, Function& out, Functions& functions) {
  out = reinterpret_cast<Function>(dlsym(functions.library, name));
  if (!out) functions.missing += std::string(functions.missing.empty() ? "" : " ") + name;
}

Functions load() {
  Functions functions;
  const char* named = std::getenv("SPILLWAY_DRIVER");
  functions.library = dlopen(named ? named : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!functions.library) {
    std::fprintf(stderr, "gpu_probe: no CUDA driver: %s\n", dlerror());
    std::exit(3);
  }
#define SPILLWAY_PROBE_TEXT(name) #name
#define SPILLWAY_PROBE_FUNCTION(name) resolve(SPILLWAY_PROBE_TEXT(name), functions.name, functions);
#include "tools/gpu_probe/probe_functions.inc"
#undef SPILLWAY_PROBE_FUNCTION
  return functions;
}

void must(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "gpu_probe: %s of device %d: %s\n", call, chosen, name_of(result).c_str());
  std::exit(3);
}

CUdevice open_device() {
  CUdevice opened = 0;
  must(cuda().cuInit(0), "cuInit");
  must(cuda().cuDeviceGet(&opened, chosen), "cuDeviceGet");
  must(cuda().cuDevicePrimaryCtxRetain(&opened_context, opened), "cuDevicePrimaryCtxRetain");
  must(cuda().cuCtxSetCurrent(opened_context), "cuCtxSetCurrent");
  return opened;
}

}  // namespace

const Functions& cuda() {
  static const Functions functions = load();
  return functions;
}

std::string name_of(CUresult result) {
  const char* name = nullptr;
  const bool known = cuda().cuGetErrorName && cuda().cuGetErrorName(result, &name) == CUDA_SUCCESS && name;
  return known ? name : "error " + std::to_string(static_cast<int>(result));
}

void choose_device(int ordinal) {
  chosen = ordinal;
}

CUdevice device() {
  static const CUdevice opened = open_device();
  return opened;
}

CUcontext context() {
  device();
  return opened_context;
}

int attribute(CUdevice_attribute which) {
  int value = -1;
  return cuda().cuDeviceGetAttribute(&value, which, device()) == CUDA_SUCCESS ? value : -1;
}

}  // namespace spillway::probe
