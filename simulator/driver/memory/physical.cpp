#include "simulator/driver/memory/physical.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/this_library.h"
#include "simulator/driver/machine/state.h"
#include "simulator/driver/memory/share.h"
#include "simulator/driver/process/report.h"

namespace spillway::simulator {
namespace {

// Larger than anything that will ever be taken; the file is sparse.
constexpr off_t kFileBytes = off_t{1} << 60;

bool fill(int descriptor, uint64_t offset, uint64_t bytes, unsigned char value) {
  const std::vector<unsigned char> block(kGranularity, value);
  for (uint64_t done = 0; done < bytes; done += block.size()) {
    const size_t length = std::min<uint64_t>(block.size(), bytes - done);
    if (pwrite(descriptor, block.data(), length, static_cast<off_t>(offset + done)) !=
        static_cast<ssize_t>(length))
      return false;
  }
  return true;
}

// By the library that holds the code: libc10_cuda.so has PyTorch's caching allocators and little else. The
// map is never destroyed: a thread may make memory while the process's exit waits for it.
Taker taker_at(Site site) {
  static auto& known = *new std::unordered_map<Site, Taker>;
  const auto [entry, added] = known.try_emplace(site, Taker::kOther);
  if (!added) return entry->second;
  const std::string_view file = library_name(site);
  const bool ours = file.starts_with("libspillway") && !file.starts_with("libspillway_preload");
  if (file.starts_with("libc10_cuda") || ours) entry->second = Taker::kAllocator;
  return entry->second;
}

}  // namespace

PageLabel& next_page_label() {
  thread_local PageLabel label;
  return label;
}

int BackingFile::descriptor() {
  if (descriptor_ >= 0) return descriptor_;
  const std::string name = "spillway-device-" + std::to_string(device_);
  descriptor_ = memfd_create(name.c_str(), MFD_CLOEXEC);
  if (descriptor_ >= 0 && ftruncate(descriptor_, kFileBytes) != 0) {
    close(descriptor_);
    descriptor_ = -1;
  }
  return descriptor_;
}

uint64_t BackingFile::take(uint64_t bytes) {
  const uint64_t offset = next_;
  next_ += bytes;
  return offset;
}

void BackingFile::give(uint64_t offset, uint64_t bytes) {
  fallocate(descriptor_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
            static_cast<off_t>(bytes));
}

BackingFile& PhysicalMemory::file(Device* device) {
  return device ? device->file : host_;
}

Page* PhysicalMemory::add(std::unique_ptr<Page> page) {
  page->handle = next_handle_++;
  page->references = 1;
  Page* added = page.get();
  pages_.emplace_hint(pages_.end(), page->handle, std::move(page));
  return added;
}

CUresult PhysicalMemory::back(Page& page) {
  page.descriptor = file(page.device).descriptor();
  if (page.descriptor < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  const bool filled = !poison_ || fill(page.descriptor, page.offset, page.bytes, 0xFF);
  return filled ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

bool PhysicalMemory::charge(Page& page, uint64_t* prepaid) {
  if (!page.device) return true;
  Account& account = page.device->account;
  if (prepaid) {
    if (!account.take_pages(page.bytes - *prepaid, page.taker)) return false;
    account.hand_over(std::exchange(*prepaid, 0), Taker::kOther, page.taker);
    return true;
  }
  page.label = next_page_label();
  if (page.label.label.empty()) return account.take_pages(page.bytes, page.taker);
  const bool charged = account.charge(page.label.label, page.label.bytes);
  if (charged) next_page_label() = {};
  return charged;
}

void PhysicalMemory::discharge(const Page& page) {
  if (!page.device) return;
  if (page.pooled)
    page.device->account.hand_over(page.bytes, page.taker, Taker::kOther);
  else if (page.label.label.empty())
    page.device->account.give_pages(page.bytes, page.taker);
  else
    page.device->account.discharge(page.label.label, page.label.bytes);
}

CUresult PhysicalMemory::create(const CUmemAllocationProp& properties, Device* device, uint64_t bytes,
                                Site site, Page** out, uint64_t* prepaid) {
  auto page = std::make_unique<Page>();
  page->properties = properties;
  page->device = device;
  page->bytes = bytes;
  page->site = site;
  page->taker = taker_at(site);
  if (!charge(*page, prepaid)) return refused_for_lack_of_room();
  page->offset = file(device).take(bytes);
  if (const CUresult result = compute_ ? back(*page) : CUDA_SUCCESS; result != CUDA_SUCCESS) {
    discharge(*page);
    return result;
  }
  if (page->label.label.empty()) live_bytes_ += bytes;
  peak_bytes_ = std::max(peak_bytes_, live_bytes_);
  *out = add(std::move(page));
  return CUDA_SUCCESS;
}

Page* PhysicalMemory::adopt(const CUmemAllocationProp& properties, Device* device, uint64_t bytes,
                            int descriptor, uint64_t offset) {
  auto page = std::make_unique<Page>();
  page->properties = properties;
  page->device = device;
  page->bytes = bytes;
  page->descriptor = descriptor;
  page->offset = offset;
  page->charged = false;
  return add(std::move(page));
}

Page* PhysicalMemory::find(CUmemGenericAllocationHandle handle) {
  const auto found = pages_.find(handle);
  return found == pages_.end() || found->second->references == 0 ? nullptr : found->second.get();
}

Page* PhysicalMemory::find_extent(const Device* device, uint64_t offset) {
  for (auto& [handle, page] : pages_)
    if (page->device == device && page->offset == offset && page->charged) return page.get();
  return nullptr;
}

void PhysicalMemory::drop_if_unused(Page* page) {
  if (page->references > 0 || page->mappings > 0) return;
  if (page->charged) {
    discharge(*page);
    if (page->label.label.empty()) live_bytes_ -= page->bytes;
    if (page->named) withdraw_from_file(*page);
    if (page->descriptor >= 0 && !page->exported) file(page->device).give(page->offset, page->bytes);
  } else if (page->descriptor >= 0) {
    close(page->descriptor);
  }
  pages_.erase(page->handle);
}

}  // namespace spillway::simulator
