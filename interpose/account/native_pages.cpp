#include "interpose/account/native_pages.h"

#include "interpose/account/native_account.h"

namespace spillway::interpose {
namespace {

constexpr uint64_t kLeastMappingBytes = 2 << 20;

void drop_if_unused(const HeldTable& table, NativeEntry* page) SPILLWAY_REQUIRES(native_table_lock) {
  if (page->references == 0 && page->mappings == 0) table.drop(page);
}

// Its bytes are the page's, which goes with its last handle and mapping.
void unmap(const HeldTable& table, NativeEntry* mapping) SPILLWAY_REQUIRES(native_table_lock) {
  const NativeEntry gone = *mapping;
  table.drop(mapping);
  NativeEntry* page = table->find(Native::kHandle, gone.page);
  if (page == nullptr || page->serial != gone.page_serial || page->mappings == 0) return;
  --page->mappings;
  drop_if_unused(table, page);
}

}  // namespace

uint64_t page_serial(uint64_t handle) {
  if (!is_counting()) return 0;
  const HeldTable table;
  const NativeEntry* page = table->find(Native::kHandle, handle);
  return page == nullptr ? 0 : page->serial;
}

void page_released(uint64_t handle, uint64_t serial) {
  const HeldTable table;
  NativeEntry* page = table->find(Native::kHandle, handle);
  if (page == nullptr || page->serial != serial || page->references == 0) return;
  --page->references;
  drop_if_unused(table, page);
}

void page_retained(uint64_t handle) {
  const HeldTable table;
  if (NativeEntry* page = table->find(Native::kHandle, handle)) ++page->references;
}

void page_mapped(uint64_t address, uint64_t bytes, uint64_t handle) {
  const HeldTable table;
  if (NativeEntry* old = table->find(Native::kMapping, address)) unmap(table, old);
  NativeEntry* page = table->find(Native::kHandle, handle);
  if (page == nullptr) return;
  ++page->mappings;
  table.add({.key = address,
             .page = handle,
             .page_serial = page->serial,
             .mapped_bytes = bytes,
             .kind = Native::kMapping});
}

Unmapping::Unmapping(uint64_t address, uint64_t bytes) : address_(address), bytes_(bytes) {
  if (!is_counting()) return;
  const HeldTable table;
  newest_ = table.newest_serial();
}

// Whole mappings, one behind the other; between them may be some of pages that are not counted, and some that
// another thread has made since.
void Unmapping::finish() const {
  if (newest_ == 0) return;
  const HeldTable table;
  for (uint64_t at = address_; table->count(Native::kMapping) != 0 && at - address_ < bytes_;) {
    NativeEntry* mapping = table->find(Native::kMapping, at);
    const bool gone = mapping != nullptr && mapping->serial <= newest_;
    at += gone ? mapping->mapped_bytes : kLeastMappingBytes;
    if (gone) unmap(table, mapping);
  }
}

}  // namespace spillway::interpose
