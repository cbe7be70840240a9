#include "allocator/pages/host_pages.h"

#include <string>

namespace spillway {

// A place that failed for want of memory alone is tried again: there may be some the next time.
CUresult HostPages::find_place(CUdevice device, uint64_t trial_bytes) {
  bool may_work_later = false;
  if (!tried_) {
    std::string why_not;
    place_ = driver::find_host_place(table_, device, trial_bytes, &why_not, &may_work_later);
    tried_ = !may_work_later;
  }
  if (place_) return CUDA_SUCCESS;
  return may_work_later ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult HostPages::create(CUdevice device, uint64_t trial_bytes, uint64_t bytes,
                           CUmemGenericAllocationHandle* handle) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  std::optional<CUmemAccessDesc> access;
  {
    const Locked guard(mutex_);
    if (const CUresult result = find_place(device, trial_bytes); result != CUDA_SUCCESS) return result;
    const driver::HostPlace place = place_.value_or(driver::HostPlace{});
    properties.location = place.location;
    if (place.cpu_access) access = driver::cpu_access_to(place.location);
  }
  const CUresult result = table_.cuMemCreate(handle, bytes, &properties, 0);
  if (result != CUDA_SUCCESS) return result;
  const Locked guard(mutex_);
  made_[*handle] = access;
  any_made_.store(true, std::memory_order_release);
  return CUDA_SUCCESS;
}

void HostPages::forget(CUmemGenericAllocationHandle handle) {
  if (!any_made_.load(std::memory_order_acquire)) return;
  const Locked guard(mutex_);
  made_.erase(handle);
}

std::optional<CUmemAccessDesc> HostPages::cpu_access(CUmemGenericAllocationHandle handle) const {
  if (!any_made_.load(std::memory_order_acquire)) return std::nullopt;
  const Locked guard(mutex_);
  const auto page = made_.find(handle);
  return page == made_.end() ? std::nullopt : page->second;
}

}  // namespace spillway
