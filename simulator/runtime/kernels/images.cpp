#include "simulator/runtime/kernels/images.h"

#include <array>
#include <cstdio>
#include <set>
#include <string>

#include "base/mutex.h"
#include "base/this_library.h"
#include "simulator/runtime/device.h"
#include "simulator/runtime/driver.h"
#include "simulator/runtime/kernels/registry.h"

namespace spillway::runtime {
namespace {

std::string library_of(const void* address) {
  const std::string_view name = library_name(address);
  return name.empty() ? "a module" : std::string(name);
}

void say_refused(const Binary& binary, const std::vector<cards::Image>& images, const Kernel& kernel,
                 int device) {
  static Mutex<LockOrder::kSimulatedCode> mutex;
  static auto* const said SPILLWAY_PT_GUARDED_BY(mutex) = new std::set<std::string>;
  const std::string library = library_of(binary.wrapper());
  const Locked lock(mutex);
  if (!said->insert(library).second) return;
  char name[256] = "";
  device_call(&Driver::cuDeviceGetName, name, static_cast<int>(sizeof name), device);
  std::fprintf(
      stderr,
      "spillway simulator: %s has no kernels for compute capability %d.%d (%s): it was built for %s. Kernel "
      "%s fails as on the card, with cudaErrorNoKernelImageForDevice\n",
      library.c_str(), attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
      attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR), name,
      cards::list_images(images).c_str(), kernel.name);
}

// Code is loaded kernel by kernel, since lazy loading is the default, into granules of device memory.
cudaError_t charge_code(int device, uint64_t bytes) {
  constexpr size_t kMaxDevices = 32;
  static Mutex<LockOrder::kSimulatedCode> mutex;
  static std::array<uint64_t, kMaxDevices> room SPILLWAY_GUARDED_BY(mutex){};  // left in the last granule
  const SpillwaySimulatorControl& control = *driver().control;
  const uint64_t granule = control.overhead(device, "code.granule");
  if (granule == 0 || static_cast<size_t>(device) >= kMaxDevices) return cudaSuccess;
  const Locked lock(mutex);
  uint64_t& left = room[static_cast<size_t>(device)];
  if (bytes > left) {
    const uint64_t more = (bytes - left + granule - 1) / granule * granule;
    const CUresult result = control.charge(device, "modules", more);
    if (result != CUDA_SUCCESS) return to_runtime(result);
    left += more;
  }
  left -= bytes;
  return cudaSuccess;
}

cudaError_t load_on(Kernel& kernel, int device) {
  const std::vector<cards::Image>& images = kernel.binary->images();
  if (images.empty()) return cudaSuccess;
  const cards::Image* image = image_of(kernel, device);
  if (image == nullptr) {
    say_refused(*kernel.binary, images, kernel, device);
    return cudaErrorNoKernelImageForDevice;
  }
  return charge_code(device, image->bytes / kernel.binary->kernels());
}

}  // namespace

const std::vector<cards::Image>& Binary::images() {
  std::call_once(read_, [this] {
    if (const void* container = cards::unwrap(wrapper_))
      images_ = cards::read_images(container, cards::container_bytes(container, 16));
  });
  return images_;
}

const cards::Image* image_of(const Kernel& kernel, int device) {
  if (kernel.binary == nullptr) return nullptr;
  return cards::choose_image(kernel.binary->images(),
                             attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
                             attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
}

cudaError_t load(Kernel& kernel) {
  if (kernel.binary == nullptr) return cudaSuccess;
  int device = 0;
  if (const cudaError_t error = current_device(&device); error != cudaSuccess) return error;
  const uint32_t bit = uint32_t{1} << (device & 31);
  if (kernel.loaded_on.load(std::memory_order_acquire) & bit) return cudaSuccess;
  static Mutex<LockOrder::kKernelLoad> mutex;
  const Locked lock(mutex);
  if (kernel.loaded_on.load(std::memory_order_relaxed) & bit) return cudaSuccess;
  const cudaError_t error = load_on(kernel, device);
  if (error == cudaSuccess) kernel.loaded_on.fetch_or(bit, std::memory_order_release);
  return error;
}

}  // namespace spillway::runtime
