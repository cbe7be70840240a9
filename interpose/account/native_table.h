// What the program holds natively, by address or handle: a hash table on the C library alone.
//
// Thread-safety: none of its own. Ownership: its memory is freed never: a program's exit handlers free too.
// Errors: `add` is false where the host has no memory for an entry.
#pragma once
#include <cuda.h>

#include <cstddef>
#include <cstdint>

namespace spillway::interpose {

enum class Native : uint8_t {
  kNone,
  kAddress,  // memory of cuMemAlloc, cuMemAllocAsync and their like
  kArray,
  kHandle,   // a page of cuMemCreate
  kMapping,  // of such a page, by its address
  kPool,     // of cuMemPoolCreate, or a device's own
};
inline constexpr size_t kNativeKinds = 6;

struct NativeEntry {
  uint64_t key = 0;
  uint64_t bytes = 0;
  uint64_t serial = 0;  // a higher one for each entry: who frees knows whether it is still the one it saw
  uint64_t page = 0, page_serial = 0, mapped_bytes = 0;  // of a mapping
  uint32_t references = 0, mappings = 0;  // of a page: the program's handles, and where it is mapped
  CUcontext context = nullptr;            // with which it goes
  int32_t device = -1;                    // -1: host
  Native kind = Native::kNone;
};

class NativeTable {
 public:
  NativeEntry* find(Native kind, uint64_t key);
  // Invalidates what `find` gave.
  bool add(const NativeEntry& entry);
  void remove(NativeEntry* entry);
  // For a forked child: what was there is the parent's.
  void forget_all();
  size_t count(Native kind) const { return counts_[static_cast<size_t>(kind)]; }
  // Calls `visit` for each entry; true from it: removed.
  template <class Visit>
  void remove_if(Visit visit) {
    for (size_t i = 0; i < size_;)
      if (slots_[i].kind != Native::kNone && visit(slots_[i]))
        remove(&slots_[i]);  // another may have moved here
      else
        ++i;
  }
  template <class Visit>
  void each(Visit visit) const {
    for (size_t i = 0; i < size_; ++i)
      if (slots_[i].kind != Native::kNone) visit(slots_[i]);
  }

 private:
  size_t home_of(Native kind, uint64_t key) const;
  bool grow();

  NativeEntry* slots_ = nullptr;
  size_t size_ = 0, count_ = 0;  // size: 0 or a power of two
  size_t counts_[kNativeKinds] = {};
};

}  // namespace spillway::interpose
