// Pages that other processes or other devices use too: descriptors of ours, mappings of theirs, access.
#include "allocator/sharing/shared.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "allocator/heap.h"
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

}  // namespace

// The pages under a block, and where it begins in the first of them; none under an allocation of the
// driver's.
std::vector<driver::Page> DeviceHeap::pages_of(const Block* block, uint64_t* offset) {
  std::vector<driver::Page> pages;
  Arena& arena = *arenas_[block->arena];
  *offset = 0;
  if (arena.single_handle) return pages;
  const uint64_t begin = block->address / page_bytes_ * page_bytes_;
  *offset = block->address - begin;
  for (uint64_t at = begin; at < block->end(); at += page_bytes_)
    pages.push_back({arena.page(at), page_bytes_});
  return pages;
}

CUresult DeviceHeap::export_page(CUmemGenericAllocationHandle page, int* descriptor) {
  CUresult result = device_->export_page(page, descriptor);
  if (result != CUDA_SUCCESS && raise_descriptor_limit()) result = device_->export_page(page, descriptor);
  // What the program starts must not hold the memory.
  if (result == CUDA_SUCCESS) fcntl(*descriptor, F_SETFD, FD_CLOEXEC);
  return result;
}

// All pages have their descriptors, in `made` where they are new: the block is shared.
void DeviceHeap::export_block(Block* block, std::span<const driver::Page> pages, Exports& made,
                              SharedBlock* out) {
  const bool again = (block->shared & kOtherProcesses) != 0;
  block->shared |= kOtherProcesses;
  out->device = device_->id();
  for (const driver::Page& page : pages) {
    if (auto fresh = made.extract(page.handle); !fresh.empty()) exports_.insert(std::move(fresh));
    Export& shared = exports_.at(page.handle);
    if (!again) ++shared.blocks;
    out->pages.push_back({page.bytes, shared.serial, shared.descriptor});
  }
}

// kInvalid: its memory lies in another tier.
Status DeviceHeap::share_here(Block* block, uint64_t address, SharedBlock* out, std::string* text) {
  const Device::Scope scope(*device_);
  const Locked one_at_a_time(share_mutex_);
  Exports made;
  CUresult result = CUDA_SUCCESS;
  Status status = Status::kNotFound;
  *text = "the block was freed meanwhile";
  while (result == CUDA_SUCCESS) {
    std::vector<CUmemGenericAllocationHandle> missing;
    {
      const Locked guard(lock_);
      if (block->address != address || block->state != BlockState::kLive) break;
      if ((block->shared & kSpilled) != 0) {
        status = Status::kInvalid;
        *text = "the block's memory was moved to another tier each time that it came back to be shared";
        break;
      }
      const std::vector<driver::Page> pages = pages_of(block, &out->offset);
      for (const driver::Page& page : pages)
        if (!exports_.contains(page.handle) && !made.contains(page.handle)) missing.push_back(page.handle);
      if (missing.empty()) {
        export_block(block, pages, made, out);
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
  *text = "cuMemExportToShareableHandle: " + device_->describe(result) + descriptor_hint();
  return Status::kDriverFailed;
}

// The descriptors that nobody needs any more when this block is free.
std::vector<int> DeviceHeap::withdraw(const Block* block) {
  std::vector<int> descriptors;
  if ((block->shared & kOtherProcesses) == 0) return descriptors;
  uint64_t offset = 0;
  for (const driver::Page& page : pages_of(block, &offset)) {
    const auto shared = exports_.find(page.handle);
    if (--shared->second.blocks != 0) continue;
    descriptors.push_back(shared->second.descriptor);
    exports_.erase(shared);
  }
  return descriptors;
}

void DeviceHeap::close_descriptors(const std::vector<int>& descriptors) {
  for (const int descriptor : descriptors) close(descriptor);
}

int DeviceHeap::shared_descriptor(uint64_t serial) {
  if (forked()) return -1;
  const Locked guard(lock_);
  for (const auto& [page, shared] : exports_)
    if (shared.serial == serial) return fcntl(shared.descriptor, F_DUPFD_CLOEXEC, 0);
  return -1;
}

// "" or what is wrong: a page is shared exactly as long as a live shared block lies on it.
std::string DeviceHeap::check_exports() {
  std::unordered_map<CUmemGenericAllocationHandle, unsigned> found;
  for (const auto& arena : arenas_) {
    for (const Segment& segment : arena->segments()) {
      for (const Block* block = segment.first; block != nullptr; block = block->next) {
        if (block->state != BlockState::kLive || (block->shared & kOtherProcesses) == 0) continue;
        uint64_t offset = 0;
        for (const driver::Page& page : pages_of(block, &offset)) ++found[page.handle];
      }
    }
  }
  if (found.size() != exports_.size()) return "shared pages do not agree with the blocks on them";
  for (const auto& [page, shared] : exports_) {
    const auto blocks = found.find(page);
    if (blocks == found.end() || blocks->second != shared.blocks)
      return "a page is shared for another number of blocks than lie on it";
  }
  return "";
}

Status DeviceHeap::map_shared(std::span<const SharedPage> pages, uint64_t* address, std::string* text) {
  if (forked()) return Status::kUnavailable;
  const Device::Scope scope(*device_);
  return imports_.map(pages, address, text);
}

bool DeviceHeap::unmap_shared(uint64_t address) {
  if (forked()) return false;
  const Device::Scope scope(*device_);
  return imports_.unmap(address);
}

void DeviceHeap::end_sharing() {
  {
    const Locked guard(lock_);
    for (const auto& [page, shared] : exports_) close(shared.descriptor);
  }
  imports_.unmap_all();
}

CUresult DeviceHeap::grant_everywhere(const CUmemAccessDesc& access) {
  std::vector<AddressRange> runs;
  {
    const Locked guard(lock_);
    for (const auto& arena : arenas_) {
      for (const Segment& segment : arena->segments()) {
        for (uint64_t i = 0; i < segment.pages.size(); ++i) {
          if (segment.pages[i] == 0 || segment.pages[i] == kPageStored) continue;
          const uint64_t begin = segment.range.begin + i * page_bytes_;
          if (runs.empty() || runs.back().end != begin) runs.push_back({begin, begin});
          runs.back().end += page_bytes_;
        }
      }
    }
  }
  for (const AddressRange& range : imports_.ranges()) runs.push_back(range);
  for (const AddressRange& run : runs) {
    const CUresult result = device_->set_access(run.begin, run.bytes(), access);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

Status DeviceHeap::grant(DeviceId peer, std::string* text) {
  if (forked()) return Status::kUnavailable;
  const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, {static_cast<int>(peer)}},
                               CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  const Device::Scope scope(*device_);
  CUresult result = CUDA_SUCCESS;
  {
    const Locked imports_guard(imports_.mutex());
    const Locked mapping(mappings_mutex_);
    if (device_->gives_access(access)) return Status::kOk;
    result = grant_everywhere(access);
    if (result == CUDA_SUCCESS) device_->add_access(access);
  }
  if (result == CUDA_SUCCESS) {
    find_peers();  // that device too must reach them
    return Status::kOk;
  }
  *text = "device " + std::to_string(static_cast<int>(peer)) + " can not use the memory of device " +
          std::to_string(device_index_) + ": cuMemSetAccess: " + device_->describe(result);
  return Status::kDriverFailed;
}

}  // namespace spillway
