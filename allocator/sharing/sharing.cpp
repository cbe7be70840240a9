#include "allocator/sharing/sharing.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "allocator/tiers/choice/pressure.h"
#include "base/descriptor_limit.h"

namespace spillway {
namespace {

uint64_t next_serial() {
  static std::atomic<uint64_t> last{0};
  return last.fetch_add(1) + 1;
}

std::string descriptor_hint() {
  return "; each shared page takes a file descriptor, and the process may have " +
         std::to_string(descriptor_limit()) + " (ulimit -n)";
}

// Where pages are, as ranges without gaps.
std::vector<AddressRange> mapped_ranges(const Tiling& tiling, uint64_t page_bytes) {
  std::vector<AddressRange> runs;
  for (const auto& arena : tiling.arenas()) {
    for (const Segment& segment : arena->segments()) {
      for (uint64_t i = 0; i < segment.pages.size(); ++i) {
        if (segment.pages[i] == 0 || segment.pages[i] == kPageStored) continue;
        const uint64_t begin = segment.range.begin + i * page_bytes;
        if (runs.empty() || runs.back().end != begin) runs.push_back({begin, begin});
        runs.back().end += page_bytes;
      }
    }
  }
  return runs;
}

}  // namespace

void use_driver_memory(Allocator& allocator, DriverMemory whose) {
  allocator.context().driver_memory = whose;
}

// What lies in another tier comes back first. Between that and the sharing it may go again.
Status Sharing::share(Block* block, uint64_t address, SharedBlock* out, std::string* text) {
  constexpr int kMostReturns = 3;
  if (heap_.forked()) return Status::kUnavailable;
  for (int returns = 0;; ++returns) {
    Status status = share_here(block, address, out, text);
    if (status != Status::kInvalid || returns == kMostReturns) return status;
    FailurePtr failure;
    status = returns_.return_to_share(block, address, &failure);
    if (status == Status::kOk) continue;
    *text = "the block's memory was moved to another tier and cannot come back to be shared";
    if (failure != nullptr) *text += ": " + failure->text;
    return status;
  }
}

CUresult Sharing::export_page(CUmemGenericAllocationHandle page, int* descriptor) {
  CUresult result = heap_.device->export_page(page, descriptor);
  if (result != CUDA_SUCCESS && raise_descriptor_limit())
    result = heap_.device->export_page(page, descriptor);
  // What the program starts must not hold the memory.
  if (result == CUDA_SUCCESS) fcntl(*descriptor, F_SETFD, FD_CLOEXEC);
  return result;
}

// kInvalid: its memory lies in another tier. Pages change behind no address meanwhile: what is exported is
// what the block has.
Status Sharing::share_here(Block* block, uint64_t address, SharedBlock* out, std::string* text) {
  const Device::Scope scope(*heap_.device);
  const Locked one_at_a_time(one_at_a_time_);
  const SharedLocked mapping(heap_.mappings_mutex);
  Exports::Map made;
  CUresult result = CUDA_SUCCESS;
  Status status = Status::kNotFound;
  *text = "the block was freed meanwhile";
  while (result == CUDA_SUCCESS) {
    std::vector<CUmemGenericAllocationHandle> missing;
    {
      const Locked guard(heap_.lock);
      if (!heap_.is_live(block, address)) break;
      if ((block->shared & kSpilled) != 0) {
        status = Status::kInvalid;
        *text = "the block's memory was moved to another tier each time that it came back to be shared";
        break;
      }
      const std::vector<driver::Page> pages = pages_of(heap_.tiling.arena_of(block), block, &out->offset);
      for (const driver::Page& page : pages)
        if (!heap_.exports.contains(page.handle) && !made.contains(page.handle))
          missing.push_back(page.handle);
      if (missing.empty()) {
        out->device = heap_.device->id();
        heap_.exports.add(block, pages, made, out);
        status = Status::kOk;
        break;
      }
    }
    for (const CUmemGenericAllocationHandle page : missing) {
      int descriptor = -1;
      result = export_page(page, &descriptor);
      if (result != CUDA_SUCCESS) break;
      made[page] = {descriptor, next_serial(), 0};
    }
  }
  for (const auto& [page, unused] : made) close(unused.descriptor);
  if (result == CUDA_SUCCESS) return status;
  *text = "cuMemExportToShareableHandle: " + heap_.device->describe(result) + descriptor_hint();
  return Status::kDriverFailed;
}

int Sharing::descriptor(uint64_t serial) {
  if (heap_.forked()) return -1;
  const Locked guard(heap_.lock);
  return heap_.exports.duplicate(serial);
}

Status Sharing::map(std::span<const SharedPage> pages, uint64_t* address, std::string* text) {
  if (heap_.forked()) return Status::kUnavailable;
  const Device::Scope scope(*heap_.device);
  return imports_.map(pages, address, text);
}

bool Sharing::unmap(uint64_t address) {
  if (heap_.forked()) return false;
  const Device::Scope scope(*heap_.device);
  return imports_.unmap(address);
}

void Sharing::end() {
  {
    const Locked guard(heap_.lock);
    heap_.exports.close_all();
  }
  imports_.unmap_all();
}

CUresult Sharing::grant_everywhere(const CUmemAccessDesc& access) {
  std::vector<AddressRange> runs;
  {
    const Locked guard(heap_.lock);
    runs = mapped_ranges(heap_.tiling, heap_.page_bytes);
  }
  for (const AddressRange& range : imports_.ranges()) runs.push_back(range);
  for (const AddressRange& run : runs) {
    const CUresult result = heap_.device->set_access(run.begin, run.bytes(), access);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

bool Sharing::would_lose_atomics(DeviceId device) const {
  for (int other = 0; other < AllocatorContext::kMaxDevices; ++other)
    if (heap_.shared.guests[static_cast<size_t>(other)].load() != 0 &&
        heap_.device->loses_atomics(static_cast<int>(device), other))
      return true;
  return false;
}

Status Sharing::grant(DeviceId peer, std::string* text) {
  if (heap_.forked()) return Status::kUnavailable;
  const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, {static_cast<int>(peer)}},
                               CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  const Device::Scope scope(*heap_.device);
  CUresult result = CUDA_SUCCESS;
  {
    const Locked imports_guard(imports_.mutex());
    const Locked mapping(heap_.mappings_mutex);
    if (heap_.device->gives_access(access)) return Status::kOk;
    if (would_lose_atomics(peer)) {
      *text = "device " + std::to_string(static_cast<int>(peer)) + " cannot be given the memory of device " +
              std::to_string(heap_.device_index) +
              " now: some of it was moved to a device on which the new one's atomic operations lose updates; "
              "enable the access before memory becomes short";
      return Status::kDriverFailed;
    }
    result = grant_everywhere(access);
    if (result == CUDA_SUCCESS) heap_.device->add_access(access);
  }
  if (result == CUDA_SUCCESS) {
    find_peers(heap_);  // that device too must reach them
    return Status::kOk;
  }
  *text = "device " + std::to_string(static_cast<int>(peer)) + " cannot use the memory of device " +
          std::to_string(heap_.device_index) + ": cuMemSetAccess: " + heap_.device->describe(result);
  return Status::kDriverFailed;
}

}  // namespace spillway
