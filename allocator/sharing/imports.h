// Pages of other processes, mapped here.
//
// Thread-safety: any thread, in the device's context. Ownership: of the mappings and of the handles behind
// them; descriptors stay the caller's. Errors: a status and a text; what the driver does not take back holds
// another process's memory, and is offered to it again.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "allocator/allocator.h"
#include "allocator/pages/device.h"
#include "base/mutex.h"

namespace spillway {

class Imports {
 public:
  // `mappings` is held shared while pages are mapped. `drain` waits for the device before they are unmapped.
  Imports(Device& device, SharedMutex<LockOrder::kMappings>& mappings, std::function<CUresult()> drain)
      : device_(device), mappings_(mappings), drain_(std::move(drain)) {}

  Status map(std::span<const SharedPage> pages, uint64_t* address, std::string* text);
  // False: nothing was mapped there.
  bool unmap(uint64_t address);
  void unmap_all();

  // While it is held nothing is mapped or unmapped here. To be taken before `mappings`.
  Mutex<LockOrder::kImports>& mutex() SPILLWAY_RETURN_CAPABILITY(mutex_) { return mutex_; }
  std::vector<AddressRange> ranges() const SPILLWAY_REQUIRES(mutex_);

 private:
  CUresult import_pages(std::span<const SharedPage> pages, std::vector<driver::Page>* imported,
                        const char** call);
  CUresult map_imported(std::span<const driver::Page> pages, AddressRange* range, const char** call)
      SPILLWAY_REQUIRES(mutex_);
  bool unmap_now(uint64_t address, uint64_t bytes);
  void release_handles() SPILLWAY_REQUIRES(mutex_);
  void retry() SPILLWAY_REQUIRES(mutex_);

  Device& device_;
  SharedMutex<LockOrder::kMappings>& mappings_;
  const std::function<CUresult()> drain_;
  Mutex<LockOrder::kImports> mutex_;
  // Address → bytes.
  std::map<uint64_t, uint64_t> mapped_ SPILLWAY_GUARDED_BY(mutex_), unneeded_ SPILLWAY_GUARDED_BY(mutex_);
  // A mapping keeps its pages.
  std::vector<CUmemGenericAllocationHandle> unneeded_handles_ SPILLWAY_GUARDED_BY(mutex_);
};

}  // namespace spillway
