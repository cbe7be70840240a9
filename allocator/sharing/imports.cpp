#include "allocator/sharing/imports.h"

namespace spillway {
namespace {

// "" or what is wrong with them.
std::string refusal(std::span<const SharedPage> pages, uint64_t most_bytes) {
  if (pages.empty()) return "no pages";
  for (const SharedPage& page : pages)
    if (page.bytes == 0 || page.bytes % kPageBytes != 0 || page.bytes > most_bytes)
      return "a shared page of " + std::to_string(page.bytes) + " bytes";
  return "";
}

}  // namespace

CUresult Imports::import_pages(std::span<const SharedPage> pages, std::vector<driver::Page>* imported,
                               const char** call) {
  for (const SharedPage& page : pages) {
    CUmemGenericAllocationHandle handle = 0;
    *call = "cuMemImportFromShareableHandle";
    const CUresult result = device_.import_page(page.descriptor, &handle);
    if (result != CUDA_SUCCESS) return result;
    imported->push_back({handle, page.bytes});
    *call = "the pages lie on another device: give both processes the same CUDA_VISIBLE_DEVICES";
    if (!device_.owns(handle)) return CUDA_ERROR_INVALID_DEVICE;
  }
  return CUDA_SUCCESS;
}

CUresult Imports::map_imported(std::span<const driver::Page> pages, AddressRange* range, const char** call) {
  uint64_t bytes = 0;
  for (const driver::Page& page : pages) bytes += page.bytes;
  *call = "cuMemAddressReserve";
  CUresult result = device_.reserve(bytes, range);
  if (result != CUDA_SUCCESS) return result;
  const SharedLocked mapping(mappings_);
  *call = "cuMemMap and cuMemSetAccess";
  result = device_.map(range->begin, pages);
  if (result == CUDA_SUCCESS)
    mapped_[range->begin] = bytes;
  else
    device_.release_range(*range);
  return result;
}

Status Imports::map(std::span<const SharedPage> pages, uint64_t* address, std::string* text) {
  *text = refusal(pages, device_.total_bytes());
  if (!text->empty()) return Status::kInvalid;
  const Locked guard(mutex_);
  retry();
  std::vector<driver::Page> imported;
  const char* call = "";
  AddressRange range;
  CUresult result = import_pages(pages, &imported, &call);
  if (result == CUDA_SUCCESS) result = map_imported(imported, &range, &call);
  for (const driver::Page& page : imported) unneeded_handles_.push_back(page.handle);
  release_handles();
  if (result == CUDA_SUCCESS) {
    *address = range.begin;
    return Status::kOk;
  }
  *text = std::string(call) + ": " + device_.describe(result);
  return Status::kDriverFailed;
}

// False: it stays mapped for now, because something may still use it.
bool Imports::unmap_now(uint64_t address, uint64_t bytes) {
  if (drain_() != CUDA_SUCCESS || device_.unmap(address, bytes) != CUDA_SUCCESS) return false;
  device_.release_range({address, address + bytes});
  return true;
}

void Imports::release_handles() {
  std::erase_if(unneeded_handles_,
                [&](CUmemGenericAllocationHandle handle) { return device_.release(handle) == CUDA_SUCCESS; });
}

void Imports::retry() {
  release_handles();
  std::erase_if(unneeded_, [&](const auto& import) { return unmap_now(import.first, import.second); });
}

bool Imports::unmap(uint64_t address) {
  const Locked guard(mutex_);
  auto import = mapped_.extract(address);
  if (import.empty()) return false;
  unneeded_.insert(std::move(import));
  retry();
  return true;
}

void Imports::unmap_all() {
  const Locked guard(mutex_);
  unneeded_.merge(mapped_);
  retry();
}

std::vector<AddressRange> Imports::ranges() const {
  std::vector<AddressRange> ranges;
  for (const auto* part : {&mapped_, &unneeded_})
    for (const auto& [address, bytes] : *part) ranges.push_back({address, address + bytes});
  return ranges;
}

}  // namespace spillway
