#include "simulator/libraries/labelled_page.h"

#include <dlfcn.h>

namespace spillway::stand_in {
namespace {

constexpr uint64_t kGranularity = uint64_t{2} << 20;

struct Driver {
  const SpillwaySimulatorControl* control = nullptr;
  decltype(&cuMemCreate) create = nullptr;
  decltype(&cuMemRelease) release = nullptr;
};

Driver find_driver() {
  Driver found;
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return found;
  const auto control =
      reinterpret_cast<SpillwaySimulatorControlFunction>(dlsym(library, "spillway_simulator_control"));
  const SpillwaySimulatorControl* table = control == nullptr ? nullptr : control();
  if (table == nullptr || table->version != SPILLWAY_SIMULATOR_CONTROL_VERSION) return found;
  found.create = reinterpret_cast<decltype(found.create)>(dlsym(library, "cuMemCreate"));
  found.release = reinterpret_cast<decltype(found.release)>(dlsym(library, "cuMemRelease"));
  found.control = table;
  return found;
}

const Driver& driver() {
  static const Driver found = find_driver();
  return found;
}

}  // namespace

const SpillwaySimulatorControl* control() {
  return driver().control;
}

CUresult make_labelled_page(int device, const char* label, uint64_t bytes,
                            CUmemGenericAllocationHandle* out) {
  *out = 0;
  if (control() == nullptr || driver().create == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (bytes == 0) return CUDA_SUCCESS;
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
  const uint64_t size = (bytes + kGranularity - 1) / kGranularity * kGranularity;
  CUresult result = control()->label_page(label, bytes);
  if (result == CUDA_SUCCESS) result = driver().create(out, size, &properties, 0);
  if (result != CUDA_SUCCESS) control()->label_page(nullptr, 0);
  return result;
}

void release_labelled_page(CUmemGenericAllocationHandle page) {
  if (page != 0 && driver().release != nullptr) driver().release(page);
}

}  // namespace spillway::stand_in
