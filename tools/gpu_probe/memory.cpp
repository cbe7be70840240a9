#include "tools/gpu_probe/memory.h"

#include "tools/gpu_probe/output.h"

namespace spillway::probe {
namespace {

// A page can be made, mapped and given back.
bool takes(const Kind& kind) {
  const Mapped tried(2 * kMiB, 1, kind);
  return tried.result == CUDA_SUCCESS;
}

Kind find_host() {
  const int node = attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID);
  if (const Kind kind = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = node}; node >= 0 && takes(kind))
    return kind;
  if (const Kind kind = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = 0}; takes(kind)) return kind;
  if (const Kind kind = {.type = CU_MEM_LOCATION_TYPE_HOST, .id = 0}; takes(kind)) return kind;
  return {};
}

}  // namespace

Kind on_device() {
  return {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device()};
}

Kind on_host() {
  static const Kind found = find_host();
  return found;
}

bool has_host_pages() {
  return on_host().type != CU_MEM_LOCATION_TYPE_DEVICE;
}

bool host_pages_or_say() {
  if (!has_host_pages()) say("host pages", "none here: every location was refused");
  return has_host_pages();
}

CUmemAllocationProp properties(const Kind& kind) {
  CUmemAllocationProp out = {};
  out.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  out.location = {.type = kind.type, .id = kind.id};
  if (kind.descriptor) out.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  out.allocFlags.gpuDirectRDMACapable = kind.rdma;
  return out;
}

CUresult create(CUmemGenericAllocationHandle& out, uint64_t bytes, const Kind& kind) {
  const CUmemAllocationProp wanted = properties(kind);
  return cuda().cuMemCreate(&out, bytes, &wanted, 0);
}

CUresult allow(CUdeviceptr address, uint64_t bytes) {
  const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device()},
                                  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  return cuda().cuMemSetAccess(address, bytes, &access, 1);
}

Range::Range(uint64_t bytes)
    : bytes(bytes),
      result(device() < 0 ? CUDA_ERROR_INVALID_DEVICE : cuda().cuMemAddressReserve(&base, bytes, 0, 0, 0)) {}

Range::~Range() {
  if (result == CUDA_SUCCESS) cuda().cuMemAddressFree(base, bytes);
}

Mapped::Mapped(uint64_t page_bytes, int pages, const Kind& kind) : Mapped(page_bytes, pages, kind, 0, kind) {}

Mapped::Mapped(uint64_t page_bytes, int first, const Kind& kind, int second, const Kind& other)
    : page_bytes_(page_bytes), range_(page_bytes * static_cast<uint64_t>(first + second)) {
  result = range_.result;
  if (result == CUDA_SUCCESS) result = map(0, first, kind);
  if (result == CUDA_SUCCESS && second > 0) result = map(first, second, other);
}

CUresult Mapped::map(int first, int count, const Kind& kind) {
  for (int i = first; i < first + count; ++i) {
    CUmemGenericAllocationHandle made = 0;
    if (const CUresult failed = create(made, page_bytes_, kind); failed != CUDA_SUCCESS) return failed;
    handles_.push_back(made);
    const CUdeviceptr place = range_.base + static_cast<uint64_t>(i) * page_bytes_;
    if (const CUresult failed = cuda().cuMemMap(place, page_bytes_, 0, made, 0); failed != CUDA_SUCCESS)
      return failed;
    mapped_ += page_bytes_;
  }
  return allow(range_.base + static_cast<uint64_t>(first) * page_bytes_,
               static_cast<uint64_t>(count) * page_bytes_);
}

void Mapped::unmap() {
  if (mapped_ > 0) cuda().cuMemUnmap(range_.base, mapped_);
  for (const auto made : handles_) cuda().cuMemRelease(made);
  handles_.clear();
  mapped_ = 0;
}

CUresult Mapped::remap(const Kind& kind) {
  const int pages = static_cast<int>(range_.bytes / page_bytes_);
  unmap();
  return result = map(0, pages, kind);
}

Mapped::~Mapped() {
  unmap();
}

uint64_t free_bytes() {
  device();
  size_t unused = 0, total = 0;
  return cuda().cuMemGetInfo(&unused, &total) == CUDA_SUCCESS ? unused : 0;
}

}  // namespace spillway::probe
