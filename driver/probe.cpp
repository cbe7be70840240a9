#include "driver/probe.h"

#include <unistd.h>

#include "driver/host_pages.h"
#include "driver/mapping.h"

namespace spillway::driver {
namespace {

// Retains the primary context and makes it current for the probe's length.
class ContextScope {
 public:
  ContextScope(const Table& table, CUdevice device) : table_(table), device_(device) {
    result_ = table.cuDevicePrimaryCtxRetain(&context_, device);
    if (result_ != CUDA_SUCCESS) return;
    retained_ = true;
    result_ = table.cuCtxPushCurrent(context_);
    pushed_ = result_ == CUDA_SUCCESS;
  }
  ~ContextScope() {
    CUcontext popped = nullptr;
    if (pushed_) table_.cuCtxPopCurrent(&popped);
    if (retained_) table_.cuDevicePrimaryCtxRelease(device_);
  }
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;
  CUresult result() const { return result_; }

 private:
  const Table& table_;
  CUdevice device_;
  CUcontext context_ = nullptr;
  CUresult result_ = CUDA_SUCCESS;
  bool retained_ = false, pushed_ = false;
};

class Prober {
 public:
  Prober(const Table& table, CUdevice device) : table_(table), device_(device) {}

  Features run(HostPagesTrial host) {
    device_pages();
    if (features_.virtual_memory) {
      if (host == HostPagesTrial::kYes) host_pages();
      refused_ = CUDA_SUCCESS;
      features_.file_descriptors =
          shares("file descriptors", CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) ||
          is_believed(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
      features_.fabric = shares("fabric handles", CU_MEM_HANDLE_TYPE_FABRIC);
    }
    features_.rdma = attribute(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED) == 1;
    if (!features_.rdma) missing("GPUDirect RDMA", "the device does not offer it");
    return features_;
  }

 private:
  static CUmemAllocationProp properties(CUmemLocationType type, int id) {
    CUmemAllocationProp prop = {};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location = {.type = type, .id = id};
    return prop;
  }

  void missing(const char* feature, const std::string& why) {
    features_.why_not += std::string(feature) + ": " + why + "\n";
  }
  bool failed(const char* feature, const char* call, CUresult result) {
    if (result == CUDA_SUCCESS) return false;
    refused_ = result;
    missing(feature, std::string(call) + ": " + describe(table_, result));
    return true;
  }

  int attribute(CUdevice_attribute which) {
    int value = -1;
    return table_.cuDeviceGetAttribute(&value, which, device_) == CUDA_SUCCESS ? value : -1;
  }

  // A full device refutes nothing: where a trial failed for want of memory, the driver's word has to do.
  bool is_believed(CUdevice_attribute says_so) {
    return refused_ == CUDA_ERROR_OUT_OF_MEMORY && attribute(says_so) == 1;
  }

  // Creates a page, maps it for the device and gives all back.
  bool cycle(const char* feature, const CUmemAllocationProp& prop, uint64_t bytes) {
    CUdeviceptr address = 0;
    if (failed(feature, "cuMemAddressReserve", table_.cuMemAddressReserve(&address, bytes, 0, 0, 0)))
      return false;
    Page page{.handle = 0, .bytes = bytes};
    bool works = !failed(feature, "cuMemCreate", table_.cuMemCreate(&page.handle, bytes, &prop, 0));
    if (works) {
      CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device_},
                                .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
      works = !failed(feature, "cuMemMap or cuMemSetAccess", map(table_, address, {&page, 1}, {&access, 1}));
      if (works) works = !failed(feature, "cuMemUnmap", unmap(table_, address, bytes));
      if (failed(feature, "cuMemRelease", table_.cuMemRelease(page.handle))) works = false;
    }
    if (failed(feature, "cuMemAddressFree", table_.cuMemAddressFree(address, bytes))) works = false;
    return works;
  }

  void device_pages() {
    const char* feature = "virtual memory";
    if (!table_.cuMemCreate || !table_.cuMemMap) return missing(feature, "the driver has no cuMemCreate");
    const CUmemAllocationProp prop = properties(CU_MEM_LOCATION_TYPE_DEVICE, device_);
    size_t granularity = 0;
    if (failed(
            feature, "cuMemGetAllocationGranularity",
            table_.cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)))
      return;
    features_.virtual_memory = cycle(feature, prop, granularity) ||
                               is_believed(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
    if (features_.virtual_memory) features_.granularity_bytes = granularity;
  }

  void host_pages() {
    std::string why_not;
    bool may_work_later = false;
    const auto place =
        find_host_place(table_, device_, features_.granularity_bytes, &why_not, &may_work_later);
    if (!place) return missing("host pages", why_not);
    features_.host_pages = true;
    features_.cpu_access = place->cpu_access;
    features_.host_location = place->location;
    if (!place->cpu_access) missing("CPU access", "cuMemSetAccess takes no descriptor for the host");
  }

  // Exports a page and imports it again.
  bool shares(const char* feature, CUmemAllocationHandleType type) {
    CUmemAllocationProp prop = properties(CU_MEM_LOCATION_TYPE_DEVICE, device_);
    prop.requestedHandleTypes = type;
    CUmemGenericAllocationHandle page = 0;
    if (failed(feature, "cuMemCreate", table_.cuMemCreate(&page, features_.granularity_bytes, &prop, 0)))
      return false;
    const bool works = type == CU_MEM_HANDLE_TYPE_FABRIC ? passes_as_fabric(feature, page)
                                                         : passes_as_descriptor(feature, page);
    table_.cuMemRelease(page);
    return works;
  }

  bool passes_as_descriptor(const char* feature, CUmemGenericAllocationHandle page) {
    const auto type = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    int descriptor = -1;
    if (failed(feature, "cuMemExportToShareableHandle",
               table_.cuMemExportToShareableHandle(&descriptor, page, type, 0)))
      return false;
    CUmemGenericAllocationHandle imported = 0;
    void* shareable = reinterpret_cast<void*>(static_cast<intptr_t>(descriptor));
    const CUresult result = table_.cuMemImportFromShareableHandle(&imported, shareable, type);
    close(descriptor);
    if (failed(feature, "cuMemImportFromShareableHandle", result)) return false;
    return !failed(feature, "cuMemRelease", table_.cuMemRelease(imported));
  }

  bool passes_as_fabric(const char* feature, CUmemGenericAllocationHandle page) {
    const auto type = CU_MEM_HANDLE_TYPE_FABRIC;
    CUmemFabricHandle fabric = {};
    if (failed(feature, "cuMemExportToShareableHandle",
               table_.cuMemExportToShareableHandle(&fabric, page, type, 0)))
      return false;
    CUmemGenericAllocationHandle imported = 0;
    if (failed(feature, "cuMemImportFromShareableHandle",
               table_.cuMemImportFromShareableHandle(&imported, &fabric, type)))
      return false;
    return !failed(feature, "cuMemRelease", table_.cuMemRelease(imported));
  }

  const Table& table_;
  CUdevice device_;
  CUresult refused_ = CUDA_SUCCESS;  // the latest failure
  Features features_;
};

}  // namespace

Features probe(const Table& table, int device, HostPagesTrial host_pages) {
  CUdevice handle = 0;
  CUresult result = table.cuInit(0);
  if (result == CUDA_SUCCESS) result = table.cuDeviceGet(&handle, device);
  if (result == CUDA_SUCCESS) {
    ContextScope context(table, handle);
    result = context.result();
    if (result == CUDA_SUCCESS) return Prober(table, handle).run(host_pages);
  }
  Features none;
  none.why_not = "device " + std::to_string(device) + ": " + describe(table, result) + "\n";
  return none;
}

}  // namespace spillway::driver
