#include "trainer/residency/host_tensor.h"

#include <c10/core/DeviceGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>

#include "driver/table.h"
#include "trainer/plan/parameters/tile_record.h"
#include "trainer/runtime/core.h"
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

std::atomic<uint64_t> locked_now{0}, locked_most{0};

void count_locked(uint64_t bytes) {
  const uint64_t now = locked_now += bytes;
  for (uint64_t most = locked_most; now > most && !locked_most.compare_exchange_weak(most, now);) {
  }
}

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

HostOutOfMemory::HostOutOfMemory(uint64_t bytes, at::Device device, const std::string& text)
    : OutOfMemoryError({__func__, __FILE__, __LINE__},
                       "out of memory: the host has no " + std::to_string(bytes) + " bytes" + text),
      bytes_(bytes),
      device_(device) {}

uint64_t HostOutOfMemory::note(bool is_done_again) const {
  const int device = device_.is_cuda() ? device_.index() : 0;
  return Core::get().note_host_failure(device, bytes_, is_done_again);
}

PageLocked PageLocked::bytes() {
  return {.now = locked_now, .most = locked_most};
}

void PageLocked::begin_most() {
  locked_most = locked_now.load();
}

at::Tensor disk_tensor(uint64_t bytes, at::Device device) {
  const uint64_t whole = aligned(std::max<uint64_t>(bytes, 1), kHugePage);
  void* const memory = huge_pages(whole);
  if (memory == nullptr) throw HostOutOfMemory(bytes, device, "");
  if (!device.is_cuda()) return at::from_blob(memory, {int64_t(bytes)}, &std::free, at::kByte);
  const driver::Table& table = driver_table();
  if (!lock_pages(table, device, memory, whole)) {
    std::free(memory);
    return host_tensor({int64_t(bytes)}, at::kByte, device);
  }
  count_locked(whole);
  const auto free = [&table, whole](void* of) {
    locked_now -= whole;
    table.cuMemHostUnregister(of);
    std::free(of);
  };
  return at::from_blob(memory, {int64_t(bytes)}, free, at::kByte);
}

at::Tensor host_tensor(at::IntArrayRef sizes, at::ScalarType type, at::Device device) {
  const auto options = at::TensorOptions().dtype(type);
  const size_t bytes = size_t(c10::multiply_integers(sizes)) * c10::elementSize(type);
  if (!device.is_cuda() || bytes == 0) return at::empty(sizes, options);
  const driver::Table& table = driver_table();
  std::string why_not;
  void* const memory = page_locked(table, device, bytes, &why_not);
  if (memory == nullptr)
    throw HostOutOfMemory(bytes, device, " to lock for copies to the device: " + why_not);
  count_locked(bytes);
  const auto free = [&table, bytes](void* of) {
    table.cuMemFreeHost(of);
    locked_now -= bytes;
  };
  return at::from_blob(memory, sizes, free, options);
}

void copy_rows(const at::Tensor& to, const at::Tensor& from, c10::Stream stream) {
  const driver::Table& table = driver_table();
  const c10::DeviceGuard guard(to.device());
  const auto row = size_t(from.size(1) * from.element_size());
  CUDA_MEMCPY2D rows{};
  rows.srcMemoryType = CU_MEMORYTYPE_HOST;
  rows.srcHost = from.const_data_ptr();
  rows.srcPitch = size_t(from.stride(0) * from.element_size());
  rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  rows.dstDevice = reinterpret_cast<CUdeviceptr>(to.mutable_data_ptr());
  rows.dstPitch = row;
  rows.WidthInBytes = row;
  rows.Height = size_t(from.size(0));
  CUresult result = have_context(table, to.device());
  if (result == CUDA_SUCCESS) result = table.cuMemcpy2DAsync(&rows, c10::cuda::CUDAStream(stream).stream());
  TORCH_CHECK(result == CUDA_SUCCESS, "a copy of rows to ", to.device(), ": ",
              driver::describe(table, result));
}

}  // namespace spillway::trainer
