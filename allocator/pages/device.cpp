#include "allocator/pages/device.h"

#include <algorithm>
#include <utility>

#include "driver/probe.h"

namespace spillway {

std::unique_ptr<Device> Device::open(const driver::Table& table, DeviceId id, bool* unsupported,
                                     std::string* text) {
  std::unique_ptr<Device> device(new Device(table, id));
  *unsupported = false;
  if (device->start(unsupported, text) != CUDA_SUCCESS) return nullptr;
  return device;
}

CUresult Device::start(bool* unsupported, std::string* text) {
  const char* call = "cuInit";
  auto failed = [&](CUresult result) {
    *text = "device " + std::to_string(static_cast<int>(id_)) + ": " + call + ": " + describe(result);
    return result;
  };
  CUresult result = table_.cuInit(0);
  if (result != CUDA_SUCCESS) return failed(result);
  call = "cuDeviceGet";
  if (result = table_.cuDeviceGet(&device_, static_cast<int>(id_)); result != CUDA_SUCCESS)
    return failed(result);
  const driver::Features features = driver::probe(table_, static_cast<int>(id_));
  if (!features.virtual_memory) {
    *unsupported = true;
    *text = "device " + std::to_string(static_cast<int>(id_)) +
            " cannot map memory by pages, which Spillway needs: " + features.why_not;
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  call = "cuDevicePrimaryCtxRetain";
  CUcontext context = nullptr;
  if (result = table_.cuDevicePrimaryCtxRetain(&context, device_); result != CUDA_SUCCESS)
    return failed(result);
  context_ = context;

  const uint64_t granularity = features.granularity_bytes;
  page_bytes_ = (kPageBytes + granularity - 1) / granularity * granularity;
  if (page_bytes_ % kPageBytes != 0) {
    *unsupported = true;
    *text = "device " + std::to_string(static_cast<int>(id_)) + " has pages of " +
            std::to_string(granularity) + " bytes; Spillway needs a divisor or a multiple of 2 MiB";
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  properties_.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties_.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device_}};
  // Sharing and RDMA cannot be added to a page later.
  if (features.file_descriptors) properties_.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  if (features.rdma) properties_.allocFlags.gpuDirectRDMACapable = 1;
  access_.push_back({properties_.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE});

  Scope scope(*this);
  call = "cuMemGetInfo";
  size_t free = 0, total = 0;
  if (result = table_.cuMemGetInfo(&free, &total); result != CUDA_SUCCESS) return failed(result);
  total_bytes_ = total;
  context_bytes_ = total - free;
  has_libraries_ = table_.simulator == nullptr || table_.simulator->overhead(device_, "context") != 0;
  return CUDA_SUCCESS;
}

Device::~Device() {
  if (context_ == nullptr) return;
  {
    Scope scope(*this);
    events_.end();
    timed_events_.end();
    copies_.end();
    clock_.end();
  }
  table_.cuDevicePrimaryCtxRelease(device_);
}

Device::Scope::Scope(const Device& device) : device_(device) {
  CUcontext current = nullptr;
  device.table_.cuCtxGetCurrent(&current);
  if (current != device.context_) pushed_ = device.table_.cuCtxPushCurrent(device.context_) == CUDA_SUCCESS;
  if (device.table_.cuThreadExchangeStreamCaptureMode != nullptr)
    mode_changed_ = device.table_.cuThreadExchangeStreamCaptureMode(&mode_) == CUDA_SUCCESS;
}

Device::Scope::~Scope() {
  if (mode_changed_) device_.table_.cuThreadExchangeStreamCaptureMode(&mode_);
  CUcontext popped = nullptr;
  if (pushed_) device_.table_.cuCtxPopCurrent(&popped);
}

CUresult Device::reserve(uint64_t bytes, AddressRange* out) {
  CUdeviceptr address = 0;
  const CUresult result = table_.cuMemAddressReserve(&address, bytes, page_bytes_, 0, 0);
  if (result == CUDA_SUCCESS) *out = {address, address + bytes};
  return result;
}

CUresult Device::release_range(AddressRange range) {
  return table_.cuMemAddressFree(range.begin, range.bytes());
}

CUresult Device::create(uint64_t bytes, CUmemGenericAllocationHandle* handle) {
  return count(table_.cuMemCreate(handle, bytes, &properties_, 0));
}

CUresult Device::release(CUmemGenericAllocationHandle handle) {
  host_.forget(handle);  // before another page can have the same number
  return count(table_.cuMemRelease(handle));
}

CUresult Device::create_elsewhere(Tier tier, DeviceId peer, uint64_t bytes,
                                  CUmemGenericAllocationHandle* handle) {
  if (tier == Tier::kHost) return count(host_.create(device_, page_bytes_, bytes, handle));
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {static_cast<int>(peer)}};
  return count(table_.cuMemCreate(handle, bytes, &properties, 0));
}

bool Device::all_reach(CUdevice peer) const {
  return std::all_of(access_.begin(), access_.end(), [&](const CUmemAccessDesc& access) {
    int can = 0;
    return access.location.id == peer ||
           (table_.cuDeviceCanAccessPeer(&can, access.location.id, peer) == CUDA_SUCCESS && can != 0);
  });
}

bool Device::loses_atomics(CUdevice from, CUdevice to) const {
  const auto reach = [&](CUdevice device) {
    int all = 0;
    return from == device ||
           (table_.cuDeviceGetP2PAttribute(&all, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, from,
                                           device) == CUDA_SUCCESS &&
            all != 0);
  };
  return !reach(to) && reach(device_);
}

Peers Device::find_peers() const {
  Peers found;
  int count = 0;
  if (table_.cuDeviceGetCount(&count) != CUDA_SUCCESS) return found;
  found.others = count > 1;
  for (int i = 0; i < count; ++i) {
    CUuuid uuid;
    size_t total = 0;
    if (i == device_ || !all_reach(i) || table_.cuDeviceTotalMem(&total, i) != CUDA_SUCCESS ||
        table_.cuDeviceGetUuid(&uuid, i) != CUDA_SUCCESS)
      continue;
    // Over PCIe an atomic operation on a peer's memory is a plain read and write: kernels that add would lose
    // updates without an error.
    if (std::any_of(access_.begin(), access_.end(),
                    [&](const auto& access) { return loses_atomics(access.location.id, i); })) {
      found.without_atomics = true;
      continue;
    }
    Peer peer{.device = DeviceId{i}, .total_bytes = total};
    std::copy_n(reinterpret_cast<const uint8_t*>(uuid.bytes), peer.uuid.size(), peer.uuid.begin());
    found.reachable.push_back(peer);
  }
  return found;
}

CUresult Device::allocate(uint64_t bytes, uint64_t* address) {
  CUdeviceptr at = 0;
  const CUresult result = count(table_.cuMemAlloc(&at, bytes));
  *address = at;
  return result;
}

CUresult Device::free(uint64_t address) {
  return count(table_.cuMemFree(address));
}

CUresult Device::export_page(CUmemGenericAllocationHandle handle, int* descriptor) {
  return table_.cuMemExportToShareableHandle(descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
}

CUresult Device::import_page(int descriptor, CUmemGenericAllocationHandle* handle) {
  // The driver takes the number itself for a pointer.  NOLINTNEXTLINE(performance-no-int-to-ptr)
  void* number = reinterpret_cast<void*>(static_cast<intptr_t>(descriptor));
  return count(
      table_.cuMemImportFromShareableHandle(handle, number, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
}

bool Device::owns(CUmemGenericAllocationHandle handle) {
  CUmemAllocationProp properties{};
  return table_.cuMemGetAllocationPropertiesFromHandle(&properties, handle) == CUDA_SUCCESS &&
         properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE && properties.location.id == device_;
}

bool Device::gives_access(const CUmemAccessDesc& access) const {
  return std::any_of(access_.begin(), access_.end(),
                     [&](const auto& given) { return given.location.id == access.location.id; });
}

CUresult Device::set_access(uint64_t address, uint64_t bytes, const CUmemAccessDesc& access) {
  return count(table_.cuMemSetAccess(address, bytes, &access, 1));
}

CUresult Device::map(uint64_t address, std::span<const driver::Page> pages) {
  calls_.fetch_add(pages.size() + 1, std::memory_order_relaxed);
  const auto cpu = pages.empty() ? std::nullopt : host_.cpu_access(pages.front().handle);
  if (!cpu) return driver::map(table_, address, pages, access_);
  std::vector<CUmemAccessDesc> access = access_;
  access.push_back(*cpu);
  return driver::map(table_, address, pages, access);
}

CUresult Device::map_for_itself(uint64_t address, driver::Page page) {
  const CUmemAccessDesc own{properties_.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  calls_.fetch_add(2, std::memory_order_relaxed);
  return driver::map(table_, address, {&page, 1}, {&own, 1});
}

CUresult Device::unmap(uint64_t address, uint64_t bytes) {
  return count(driver::unmap(table_, address, bytes));
}

uint64_t Device::free_bytes(uint64_t fallback) {
  Scope scope(*this);
  size_t free = 0, total = 0;
  return table_.cuMemGetInfo(&free, &total) == CUDA_SUCCESS ? free : fallback;
}

bool Device::capturing(StreamId stream) {
  if (stream == kStreamGone) return false;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  // An error means that the legacy stream would join somebody's capture: as good as capturing.
  return table_.cuStreamIsCapturing(reinterpret_cast<CUstream>(stream), &status) != CUDA_SUCCESS ||
         status != CU_STREAM_CAPTURE_STATUS_NONE;
}

bool Device::idle(StreamId stream) {
  // The per-thread stream's handle means another stream on every thread; asking breaks a capture.
  return stream != kStreamGone && reinterpret_cast<CUstream>(stream) != CU_STREAM_PER_THREAD &&
         !capturing(stream) && table_.cuStreamQuery(reinterpret_cast<CUstream>(stream)) == CUDA_SUCCESS;
}

CUevent Device::record(StreamId stream, CUresult* result) {
  *result = CUDA_ERROR_INVALID_HANDLE;
  return stream == kStreamGone ? nullptr : events_.record(reinterpret_cast<CUstream>(stream), result);
}

}  // namespace spillway
