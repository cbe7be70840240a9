#include "trainer/residency/host_tensor.h"

#include <c10/core/DeviceGuard.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>

#include "driver/table.h"
#include "trainer/runtime/device_context.h"

namespace spillway::trainer {
namespace {

const driver::Table& driver_table() {
  driver::LoadError error;
  const driver::Table* table = driver::process_table(&error);
  TORCH_CHECK(table != nullptr, error.text);
  return *table;
}

// Null with the driver's reason. Every device's copies may use it.
void* page_locked(const driver::Table& table, at::Device device, size_t bytes, std::string* why_not) {
  const c10::DeviceGuard guard(device);
  void* memory = nullptr;
  CUresult result = have_context(table, device);
  if (result == CUDA_SUCCESS) result = table.cuMemHostAlloc(&memory, bytes, CU_MEMHOSTALLOC_PORTABLE);
  if (result == CUDA_SUCCESS) return memory;
  *why_not = driver::describe(table, result);
  return nullptr;
}

constexpr uint64_t kHugePage = 2 << 20;

// Null where there is none.
void* huge_pages(uint64_t bytes) {
  void* const memory = std::aligned_alloc(kHugePage, bytes);
  if (memory != nullptr) ::madvise(memory, bytes, MADV_HUGEPAGE);
  return memory;
}

bool lock_pages(const driver::Table& table, at::Device device, void* memory, uint64_t bytes) {
  const c10::DeviceGuard guard(device);
  return have_context(table, device) == CUDA_SUCCESS &&
         table.cuMemHostRegister(memory, bytes, CU_MEMHOSTREGISTER_PORTABLE) == CUDA_SUCCESS;
}

}  // namespace

at::Tensor disk_tensor(uint64_t bytes, at::Device device) {
  const uint64_t whole = (std::max<uint64_t>(bytes, 1) + kHugePage - 1) / kHugePage * kHugePage;
  void* const memory = huge_pages(whole);
  TORCH_CHECK_WITH(OutOfMemoryError, memory != nullptr, "out of memory: the host has no ", bytes, " bytes");
  const driver::Table* const table = device.is_cuda() ? &driver_table() : nullptr;
  const auto free = [table](void* of) {
    if (table != nullptr) table->cuMemHostUnregister(of);
    std::free(of);
  };
  if (table == nullptr || lock_pages(*table, device, memory, whole))
    return at::from_blob(memory, {int64_t(bytes)}, free, at::kByte);
  std::free(memory);
  return host_tensor({int64_t(bytes)}, at::kByte, device);
}

at::Tensor host_tensor(at::IntArrayRef sizes, at::ScalarType type, at::Device device) {
  const auto options = at::TensorOptions().dtype(type);
  const size_t bytes = size_t(c10::multiply_integers(sizes)) * c10::elementSize(type);
  if (!device.is_cuda() || bytes == 0) return at::empty(sizes, options);
  const driver::Table& table = driver_table();
  std::string why_not;
  void* const memory = page_locked(table, device, bytes, &why_not);
  TORCH_CHECK_WITH(OutOfMemoryError, memory != nullptr, "out of memory: the host has no ", bytes,
                   " bytes to lock for copies to the device: ", why_not);
  return at::from_blob(memory, sizes, [&table](void* of) { table.cuMemFreeHost(of); }, options);
}

}  // namespace spillway::trainer
