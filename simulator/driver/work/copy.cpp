// Copies, in one piece or by rows: the direction follows from the addresses, the time from the copy engine.
#include "simulator/driver/work/copy.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "simulator/driver/entry/call.h"
#include "simulator/driver/process/reads.h"
#include "simulator/driver/work/touch.h"

namespace spillway::simulator {
namespace {

enum class Order { kAsync, kSync };

Device* owner_of(CUdeviceptr address) {
  if (!is_device_address(address)) return nullptr;
  const auto mapping = machine().space.mapping_of(address);
  return mapping == machine().space.mappings().end() ? nullptr : mapping->second.page->device;
}

// The copy engine and its bytes per ns. Host memory has no owner. A link between devices has both directions:
// a copy takes that of the device which it comes from, whichever device's stream it is on.
std::pair<Lane*, double> engine_of(Device& device, const Device* target, Device* source) {
  const Bandwidth& speed = machine().config.bandwidth;
  if (!target) return {&device.d2h, speed.d2h};
  if (!source) return {&device.h2d, speed.h2d};
  if (target == source) return {&device.d2d, speed.d2d};
  return {&source->peer, speed.peer};
}

bool pinned(CUdeviceptr host) {
  return machine().host.find(reinterpret_cast<void*>(host)) != machine().host.blocks().end();
}

CUresult check_side(const Device& device, CUdeviceptr address, const Shape& shape, uint64_t pitch,
                    bool writes, const char* name, Site site) {
  if (!is_device_address(address)) return address ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  for (uint64_t row = 0; row < shape.rows; ++row)
    if (check(device, {address + row * pitch, shape.width, writes}, true, name, site) != CUDA_SUCCESS)
      return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

void* host_view(CUdeviceptr address) {
  return is_device_address(address) ? machine().space.alias(address) : reinterpret_cast<void*>(address);
}

// Null mode, which computes nothing. Whether the host reads what is there.
bool read_row(void* target, CUdeviceptr source, uint64_t bytes) {
  if (std::optional<Answer>& answer = next_answer(); answer && bytes <= sizeof answer->value) {
    std::memcpy(target, &answer->value, bytes);
    if (answer->assumed) ++machine().counters.assumed_sizes;
    answer.reset();
    return true;
  }
  const bool known = bytes <= KnownBytes::kLargestTold && find_known(source, target, bytes);
  machine().host.note_copy(target, bytes, known);
  if (known) return true;
  machine().host.clear(target, bytes);
  if (machine().config.chance) fill_with_chance(target, bytes);
  return false;
}

// Whether the target holds what the source does, as far as a program can tell.
bool move_row(CUdeviceptr target, CUdeviceptr source, uint64_t bytes) {
  const bool device_target = is_device_address(target), device_source = is_device_address(source);
  if (machine().config.compute || (!device_target && !device_source))
    std::memmove(host_view(target), host_view(source), bytes);
  else if (device_target && device_source)
    copy_known(target, source, bytes);
  else if (device_target)
    bytes <= KnownBytes::kLargest && !machine().host.holds_unknown(host_view(source), bytes)
        ? know(target, host_view(source), bytes)
        : forget(target, bytes);
  else
    return read_row(host_view(target), source, bytes);
  return true;
}

CUresult copy(const CopyWork& work, CUstream on, Order order, Site site) {
  Stream* stream = nullptr;
  bool captured = false;
  // A copy to pageable host memory holds the caller up, as the driver stages it.
  const bool waits = order == Order::kSync || (!is_device_address(work.target) && !pinned(work.target));
  if (const CUresult result = find_work_stream(on, &stream, waits ? Settled::kAlways : Settled::kToTouch);
      result != CUDA_SUCCESS)
    return result;
  if (work.shape.bytes() == 0) return CUDA_SUCCESS;
  if (!work.target || !work.source) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = settle_to_read(on, work.source, work.shape.bytes(), &stream);
      result != CUDA_SUCCESS)
    return result;
  const CUresult result = enqueue(*stream, work, site, &captured);
  if (result != CUDA_SUCCESS || captured) return result;
  if (waits) machine().clock.wait_for_all_until(stream->free_at);
  return CUDA_SUCCESS;
}

CUresult copy(CUdeviceptr target, CUdeviceptr source, uint64_t bytes, CUstream on, Order order,
              const char* name, Site site) {
  return copy(CopyWork{target, source, {.width = bytes}, name}, on, order, site);
}

CUdeviceptr address(const void* host) {
  return reinterpret_cast<CUdeviceptr>(host);
}

// One side of a 2D copy: where its first byte is, or 0 for what is not simulated (arrays).
CUdeviceptr origin(CUmemorytype type, CUdeviceptr device, const void* host, size_t x, size_t y,
                   size_t pitch) {
  if (type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_UNIFIED) return device + y * pitch + x;
  return type == CU_MEMORYTYPE_HOST ? address(host) + y * pitch + x : 0;
}

CUresult copy_2d(const CUDA_MEMCPY2D* p, CUstream on, Order order, Site site) {
  CopyWork work;
  if (const CUresult result = copy_work(p, work); result != CUDA_SUCCESS) return result;
  return copy(work, on, order, site);
}

CUresult copy_3d(const CUDA_MEMCPY3D* p, CUstream on, Order order, Site site) {
  CopyWork work;
  if (const CUresult result = copy_work(p, work); result != CUDA_SUCCESS) return result;
  return copy(work, on, order, site);
}

}  // namespace

CUresult run(const CopyWork& work, Stream& stream, Site site) {
  Machine& sim = machine();
  const Shape& shape = work.shape;
  Device& device = *stream.context->device;
  CUresult result = check_side(device, work.target, shape, shape.target_pitch, true, work.name, site);
  if (result == CUDA_SUCCESS)
    result = check_side(device, work.source, shape, shape.source_pitch, false, work.name, site);
  if (result != CUDA_SUCCESS) return result;

  Device *const target = owner_of(work.target), *const source = owner_of(work.source);
  const auto [engine, bytes_per_ns] = engine_of(device, target, source);
  const double ns = std::ceil(static_cast<double>(shape.bytes()) / bytes_per_ns);
  const Use use{place(stream, engine, static_cast<uint64_t>(ns)).end, stream.id, work.name, site};
  bool known = true;
  for (uint64_t row = 0; row < shape.rows; ++row) {
    const CUdeviceptr to = work.target + row * shape.target_pitch,
                      from = work.source + row * shape.source_pitch;
    stamp({to, shape.width, true}, use);
    stamp({from, shape.width, false}, use);
    known = move_row(to, from, shape.width) && known;
  }
  ++sim.counters.copies;
  sim.counters.copied_bytes += shape.bytes();
  if (target && !source) sim.counters.to_device_bytes += shape.bytes();
  if (source && !target) sim.counters.to_host_bytes += shape.bytes();
  if (!is_device_address(work.target) && !sim.config.compute) note_polling({work.source, shape.bytes()});
  if (is_device_address(work.source) && !is_device_address(work.target) && (sim.config.compute || !known))
    note_host_read({work.source, shape.bytes()}, site);
  return CUDA_SUCCESS;
}

CUresult copy_work(const CUDA_MEMCPY2D* p, CopyWork& out) {
  if (!p) return CUDA_ERROR_INVALID_VALUE;
  if (p->srcMemoryType == CU_MEMORYTYPE_ARRAY || p->dstMemoryType == CU_MEMORYTYPE_ARRAY)
    return CUDA_ERROR_NOT_SUPPORTED;
  const Shape shape{p->WidthInBytes, p->Height, p->srcPitch ? p->srcPitch : p->WidthInBytes,
                    p->dstPitch ? p->dstPitch : p->WidthInBytes};
  uint64_t whole = 0;
  if (shape.source_pitch < shape.width || shape.target_pitch < shape.width ||
      __builtin_mul_overflow(std::max(shape.source_pitch, shape.target_pitch), shape.rows, &whole))
    return CUDA_ERROR_INVALID_VALUE;
  out = {origin(p->dstMemoryType, p->dstDevice, p->dstHost, p->dstXInBytes, p->dstY, shape.target_pitch),
         origin(p->srcMemoryType, p->srcDevice, p->srcHost, p->srcXInBytes, p->srcY, shape.source_pitch),
         shape, "2D copy"};
  return CUDA_SUCCESS;
}

CUresult copy_work(const CUDA_MEMCPY3D* p, CopyWork& out) {
  if (!p) return CUDA_ERROR_INVALID_VALUE;
  if (p->Depth != 1 || p->srcZ || p->dstZ || p->srcLOD || p->dstLOD) return CUDA_ERROR_NOT_SUPPORTED;
  CUDA_MEMCPY2D flat = {};
  flat.srcXInBytes = p->srcXInBytes;
  flat.srcY = p->srcY;
  flat.srcMemoryType = p->srcMemoryType;
  flat.srcHost = p->srcHost;
  flat.srcDevice = p->srcDevice;
  flat.srcPitch = p->srcPitch;
  flat.dstXInBytes = p->dstXInBytes;
  flat.dstY = p->dstY;
  flat.dstMemoryType = p->dstMemoryType;
  flat.dstHost = p->dstHost;
  flat.dstDevice = p->dstDevice;
  flat.dstPitch = p->dstPitch;
  flat.WidthInBytes = p->WidthInBytes;
  flat.Height = p->Height;
  return copy_work(&flat, out);
}

}  // namespace spillway::simulator

using namespace spillway::simulator;

CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount) {
  SPILLWAY_SIM_ENTER(cuMemcpy);
  return copy(dst, src, ByteCount, nullptr, Order::kSync, "copy", call.site());
}
CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream) {
  SPILLWAY_SIM_ENTER(cuMemcpyAsync);
  return copy(dst, src, ByteCount, hStream, Order::kAsync, "copy", call.site());
}
CUresult cuMemcpyHtoD(CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount) {
  SPILLWAY_SIM_ENTER(cuMemcpyHtoD);
  return copy(dstDevice, address(srcHost), ByteCount, nullptr, Order::kSync, "host-to-device copy",
              call.site());
}
CUresult cuMemcpyHtoDAsync(CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount, CUstream hStream) {
  SPILLWAY_SIM_ENTER(cuMemcpyHtoDAsync);
  return copy(dstDevice, address(srcHost), ByteCount, hStream, Order::kAsync, "host-to-device copy",
              call.site());
}
CUresult cuMemcpyDtoH(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount) {
  SPILLWAY_SIM_ENTER(cuMemcpyDtoH);
  return copy(address(dstHost), srcDevice, ByteCount, nullptr, Order::kSync, "device-to-host copy",
              call.site());
}
CUresult cuMemcpyDtoHAsync(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream) {
  SPILLWAY_SIM_ENTER(cuMemcpyDtoHAsync);
  return copy(address(dstHost), srcDevice, ByteCount, hStream, Order::kAsync, "device-to-host copy",
              call.site());
}
// Copies inside the device do not hold the caller up.
CUresult cuMemcpyDtoD(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount) {
  SPILLWAY_SIM_ENTER(cuMemcpyDtoD);
  return copy(dstDevice, srcDevice, ByteCount, nullptr, Order::kAsync, "device copy", call.site());
}
CUresult cuMemcpyDtoDAsync(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream) {
  SPILLWAY_SIM_ENTER(cuMemcpyDtoDAsync);
  return copy(dstDevice, srcDevice, ByteCount, hStream, Order::kAsync, "device copy", call.site());
}
CUresult cuMemcpyPeer(CUdeviceptr dstDevice, CUcontext, CUdeviceptr srcDevice, CUcontext, size_t ByteCount) {
  SPILLWAY_SIM_ENTER(cuMemcpyPeer);
  return copy(dstDevice, srcDevice, ByteCount, nullptr, Order::kAsync, "peer copy", call.site());
}
CUresult cuMemcpyPeerAsync(CUdeviceptr dstDevice, CUcontext, CUdeviceptr srcDevice, CUcontext,
                           size_t ByteCount, CUstream hStream) {
  SPILLWAY_SIM_ENTER(cuMemcpyPeerAsync);
  return copy(dstDevice, srcDevice, ByteCount, hStream, Order::kAsync, "peer copy", call.site());
}
CUresult cuMemcpy2D(const CUDA_MEMCPY2D* pCopy) {
  SPILLWAY_SIM_ENTER(cuMemcpy2D);
  return copy_2d(pCopy, nullptr, Order::kSync, call.site());
}
CUresult cuMemcpy2DUnaligned(const CUDA_MEMCPY2D* pCopy) {
  SPILLWAY_SIM_ENTER(cuMemcpy2DUnaligned);
  return copy_2d(pCopy, nullptr, Order::kSync, call.site());
}
CUresult cuMemcpy2DAsync(const CUDA_MEMCPY2D* pCopy, CUstream hStream) {
  SPILLWAY_SIM_ENTER(cuMemcpy2DAsync);
  return copy_2d(pCopy, hStream, Order::kAsync, call.site());
}
CUresult cuMemcpy3D(const CUDA_MEMCPY3D* pCopy) {
  SPILLWAY_SIM_ENTER(cuMemcpy3D);
  return copy_3d(pCopy, nullptr, Order::kSync, call.site());
}
CUresult cuMemcpy3DAsync(const CUDA_MEMCPY3D* pCopy, CUstream hStream) {
  SPILLWAY_SIM_ENTER(cuMemcpy3DAsync);
  return copy_3d(pCopy, hStream, Order::kAsync, call.site());
}

// The copies of a batch may come in any order: theirs is one. The attributes are hints.
CUresult cuMemcpyBatchAsync(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes, size_t count,
                            CUmemcpyAttributes*, size_t*, size_t, CUstream hStream) {
  SPILLWAY_SIM_ENTER(cuMemcpyBatchAsync);
  if (!dsts || !srcs || !sizes || count == 0 || !hStream) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i)
    if (const CUresult result =
            copy(dsts[i], srcs[i], sizes[i], hStream, Order::kAsync, "batch copy", call.site());
        result != CUDA_SUCCESS)
      return result;
  return CUDA_SUCCESS;
}

// Of the attributes only their validity counts: bytes are copied at submission, in stream order.
CUresult cuMemcpyWithAttributesAsync(CUdeviceptr dst, CUdeviceptr src, size_t size, CUmemcpyAttributes* attr,
                                     CUstream hStream) {
  SPILLWAY_SIM_ENTER(cuMemcpyWithAttributesAsync);
  if (!attr || attr->srcAccessOrder < CU_MEMCPY_SRC_ACCESS_ORDER_STREAM ||
      attr->srcAccessOrder > CU_MEMCPY_SRC_ACCESS_ORDER_ANY)
    return CUDA_ERROR_INVALID_VALUE;
  return copy(dst, src, size, hStream, Order::kAsync, "copy", call.site());
}

SPILLWAY_SIM_FORWARD(cuMemcpyWithAttributesAsync_ptsz,
                     (CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUmemcpyAttributes* attributes,
                      CUstream stream),
                     cuMemcpyWithAttributesAsync, (dst, src, bytes, attributes, per_thread(stream)))
SPILLWAY_SIM_FORWARD(cuMemcpy_ptds, (CUdeviceptr dst, CUdeviceptr src, size_t bytes), cuMemcpy,
                     (dst, src, bytes))
SPILLWAY_SIM_FORWARD(cuMemcpyHtoD_v2_ptds, (CUdeviceptr dst, const void* src, size_t bytes), cuMemcpyHtoD,
                     (dst, src, bytes))
SPILLWAY_SIM_FORWARD(cuMemcpyDtoH_v2_ptds, (void* dst, CUdeviceptr src, size_t bytes), cuMemcpyDtoH,
                     (dst, src, bytes))
SPILLWAY_SIM_FORWARD(cuMemcpyDtoD_v2_ptds, (CUdeviceptr dst, CUdeviceptr src, size_t bytes), cuMemcpyDtoD,
                     (dst, src, bytes))
SPILLWAY_SIM_FORWARD(cuMemcpyAsync_ptsz, (CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream),
                     cuMemcpyAsync, (dst, src, bytes, per_thread(stream)))
SPILLWAY_SIM_FORWARD(cuMemcpyHtoDAsync_v2_ptsz,
                     (CUdeviceptr dst, const void* src, size_t bytes, CUstream stream), cuMemcpyHtoDAsync,
                     (dst, src, bytes, per_thread(stream)))
SPILLWAY_SIM_FORWARD(cuMemcpyDtoHAsync_v2_ptsz, (void* dst, CUdeviceptr src, size_t bytes, CUstream stream),
                     cuMemcpyDtoHAsync, (dst, src, bytes, per_thread(stream)))
SPILLWAY_SIM_FORWARD(cuMemcpyDtoDAsync_v2_ptsz,
                     (CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream), cuMemcpyDtoDAsync,
                     (dst, src, bytes, per_thread(stream)))
SPILLWAY_SIM_FORWARD(cuMemcpy2D_v2_ptds, (const CUDA_MEMCPY2D* p), cuMemcpy2D, (p))
SPILLWAY_SIM_FORWARD(cuMemcpy2DUnaligned_v2_ptds, (const CUDA_MEMCPY2D* p), cuMemcpy2DUnaligned, (p))
SPILLWAY_SIM_FORWARD(cuMemcpy2DAsync_v2_ptsz, (const CUDA_MEMCPY2D* p, CUstream stream), cuMemcpy2DAsync,
                     (p, per_thread(stream)))
SPILLWAY_SIM_FORWARD(cuMemcpyPeerAsync_ptsz,
                     (CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from, size_t bytes,
                      CUstream stream),
                     cuMemcpyPeerAsync, (dst, to, src, from, bytes, per_thread(stream)))
