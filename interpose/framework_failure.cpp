// LibTorch tells its profiler of each request that its allocator refuses, by a function of libc10.so: here it
// is heard. A refusal for a limit of LibTorch's own (set_per_process_memory_fraction) asks no driver, and is
// seen nowhere else.
//
// Thread-safety: any thread; the caller may hold LibTorch's allocator's lock. Errors: none; LibTorch's own
// function is called in any case.
#include <dlfcn.h>

#include <cstddef>
#include <cstdint>

#include "interpose/core.h"
#include "interpose/hooks/driver_table.h"
#include "interpose/process.h"

namespace spillway::interpose {
namespace {

constexpr const char* kName = "_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE";
using Tell = void (*)(int64_t bytes, size_t allocated, size_t reserved, uint16_t device);

// c10::Device: the kind in the lower byte, and which of them in the upper one.
constexpr uint8_t kCuda = 1;

// libc10.so may have been loaded where only its users see it.
Tell real_tell() {
  void* library = dlopen("libc10.so", RTLD_NOLOAD | RTLD_LAZY);
  void* const found = real_dlsym()(library == nullptr ? RTLD_NEXT : library, kName);
  if (library != nullptr) dlclose(library);
  return reinterpret_cast<Tell>(found);
}

void note(int64_t bytes, uint16_t device) {
  if (mode() != Mode::kRescue || (device & 0xff) != kCuda || bytes < 0) return;
  const spillway_core_table* table = core();
  if (table == nullptr) return;
  table->note_framework_failure(device >> 8, static_cast<uint64_t>(bytes));
  note_trace();
}

}  // namespace
}  // namespace spillway::interpose

extern "C" __attribute__((visibility("default"))) void _ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE(
    int64_t bytes, size_t allocated, size_t reserved, uint16_t device) {
  using namespace spillway::interpose;
  note(bytes, device);
  if (const Tell tell = real_tell()) tell(bytes, allocated, reserved, device);
}
