// Memsets: writes of a repeated value of 1, 2 or 4 bytes, in one piece or by rows.
#include <cmath>
#include <cstring>
#include <vector>

#include "simulator/driver/entry/call.h"
#include "simulator/driver/work/touch.h"

namespace spillway::simulator {
namespace {

void* view_of(CUdeviceptr address) {
  return is_device_address(address) ? machine().space.alias(address) : reinterpret_cast<void*>(address);
}

template <typename Value>
void fill(void* view, Value value, uint64_t count) {
  std::fill_n(static_cast<Value*>(view), count, value);
}

void fill_row(void* view, const FillWork& work) {
  switch (work.value_bytes) {
    case 1:
      return fill(view, static_cast<uint8_t>(work.value), work.width);
    case 2:
      return fill(view, static_cast<uint16_t>(work.value), work.width);
    default:
      return fill(view, work.value, work.width);
  }
}

// Null mode.
void know_row(CUdeviceptr address, const FillWork& work) {
  const uint64_t bytes = work.width * work.value_bytes;
  if (bytes > KnownBytes::kLargest) return forget(address, bytes);
  std::vector<char> row(bytes);
  fill_row(row.data(), work);
  know(address, row.data(), bytes);
}

template <typename Value>
CUresult set(CUdeviceptr address, uint64_t pitch, Value value, uint64_t width, uint64_t rows, CUstream on,
             Site site) {
  Stream* stream = nullptr;
  if (const CUresult result = find_work_stream(on, &stream, Settled::kToTouch); result != CUDA_SUCCESS)
    return result;
  uint64_t row_bytes = 0;
  if (__builtin_mul_overflow(width, sizeof(Value), &row_bytes)) return CUDA_ERROR_INVALID_VALUE;
  if (address % sizeof(Value) || (rows > 1 && (pitch < row_bytes || pitch % sizeof(Value))))
    return CUDA_ERROR_INVALID_VALUE;
  if (row_bytes == 0 || rows == 0) return CUDA_SUCCESS;
  return enqueue(*stream, FillWork{address, pitch, value, sizeof(Value), width, rows}, site);
}

}  // namespace

CUresult run(const FillWork& work, Stream& stream, Site site) {
  Machine& sim = machine();
  const uint64_t row_bytes = work.width * work.value_bytes;
  for (uint64_t row = 0; row < work.rows; ++row)
    if (check(*stream.context->device, {work.address + row * work.pitch, row_bytes, true}, true, "memset",
              site) != CUDA_SUCCESS)
      return CUDA_ERROR_INVALID_VALUE;
  const double ns = std::ceil(static_cast<double>(row_bytes * work.rows) / sim.config.bandwidth.d2d);
  const Use use{place(stream, nullptr, static_cast<uint64_t>(ns)).end, stream.id, "memset", site};
  for (uint64_t row = 0; row < work.rows; ++row) {
    stamp({work.address + row * work.pitch, row_bytes, true}, use);
    const CUdeviceptr at = work.address + row * work.pitch;
    if (sim.config.compute || !is_device_address(work.address))
      fill_row(view_of(at), work);
    else
      know_row(at, work);
  }
  return CUDA_SUCCESS;
}

}  // namespace spillway::simulator

using namespace spillway::simulator;

// D8, D16 and D32 differ in the type of the value only. None holds the caller up.
#define SPILLWAY_SIM_MEMSET(bits, type)                                                                      \
  CUresult cuMemsetD##bits##_v2(CUdeviceptr dst, type value, size_t count) {                                 \
    SPILLWAY_SIM_ENTER(cuMemsetD##bits##_v2);                                                                \
    return set<type>(dst, 0, value, count, 1, nullptr, call.site());                                         \
  }                                                                                                          \
  CUresult cuMemsetD##bits##Async(CUdeviceptr dst, type value, size_t count, CUstream stream) {              \
    SPILLWAY_SIM_ENTER(cuMemsetD##bits##Async);                                                              \
    return set<type>(dst, 0, value, count, 1, stream, call.site());                                          \
  }                                                                                                          \
  CUresult cuMemsetD2D##bits##_v2(CUdeviceptr dst, size_t pitch, type value, size_t width, size_t height) {  \
    SPILLWAY_SIM_ENTER(cuMemsetD2D##bits##_v2);                                                              \
    return set<type>(dst, pitch, value, width, height, nullptr, call.site());                                \
  }                                                                                                          \
  CUresult cuMemsetD2D##bits##Async(CUdeviceptr dst, size_t pitch, type value, size_t width, size_t height,  \
                                    CUstream stream) {                                                       \
    SPILLWAY_SIM_ENTER(cuMemsetD2D##bits##Async);                                                            \
    return set<type>(dst, pitch, value, width, height, stream, call.site());                                 \
  }                                                                                                          \
  SPILLWAY_SIM_FORWARD(cuMemsetD##bits##_v2_ptds, (CUdeviceptr dst, type value, size_t count),               \
                       cuMemsetD##bits##Async, (dst, value, count, CU_STREAM_PER_THREAD))                    \
  SPILLWAY_SIM_FORWARD(cuMemsetD##bits##Async_ptsz,                                                          \
                       (CUdeviceptr dst, type value, size_t count, CUstream stream), cuMemsetD##bits##Async, \
                       (dst, value, count, per_thread(stream)))                                              \
  SPILLWAY_SIM_FORWARD(                                                                                      \
      cuMemsetD2D##bits##Async_ptsz,                                                                         \
      (CUdeviceptr dst, size_t pitch, type value, size_t width, size_t height, CUstream stream),             \
      cuMemsetD2D##bits##Async, (dst, pitch, value, width, height, per_thread(stream)))

SPILLWAY_SIM_MEMSET(8, unsigned char)
SPILLWAY_SIM_MEMSET(16, unsigned short)
SPILLWAY_SIM_MEMSET(32, unsigned int)

// A write in the order of the stream. Waiting for a value is not simulated: who would write it may not have
// come yet.
CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags) {
  SPILLWAY_SIM_ENTER(cuStreamWriteValue32);
  if (!addr || (flags & ~CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER)) return CUDA_ERROR_INVALID_VALUE;
  return set<unsigned int>(addr, 0, value, 1, 1, stream, call.site());
}

SPILLWAY_SIM_FORWARD(cuStreamWriteValue32_v2_ptsz,
                     (CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags),
                     cuStreamWriteValue32, (per_thread(stream), address, value, flags))
