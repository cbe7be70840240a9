// Pinned host memory for blocks' bytes: chunks of one size, and single pages for what is left of a block. The
// driver takes long to pin it, so it is kept when blocks have left it, and can be made ahead. Each piece also
// stays mapped at an address of its own, its home, through which it is filled and read: a copy needs no
// mapping before it.
//
// Thread-safety: any thread, in the device's context; may be asked under the heap's lock, but `take`,
// `make_ahead` and `release` not. Ownership: of all its memory, also of what is in use. Errors: CUresult;
// what the driver does not take back stays here and is offered again. Units: bytes.
#pragma once
#include <algorithm>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "allocator/pages/device.h"
#include "base/mutex.h"

namespace spillway {

// Of whole pages. Pinning one takes about 11 ms, and copying it 1.3.
inline uint64_t host_chunk_bytes(uint64_t page_bytes) {
  constexpr uint64_t kBytes = 32 << 20;
  return std::max<uint64_t>(kBytes / page_bytes, 1) * page_bytes;
}

class HostMemory {
 public:
  // Of chunks and single pages.
  struct Amount {
    uint64_t chunks = 0, pages = 0;
    bool none() const { return chunks == 0 && pages == 0; }
    Amount& operator+=(const Amount& other) {
      chunks += other.chunks, pages += other.pages;
      return *this;
    }
  };

  explicit HostMemory(Device& device)
      : device_(device), chunk_bytes_(host_chunk_bytes(device.page_bytes())) {}

  // What a range of so many bytes takes.
  Amount amount_of(uint64_t bytes) const {
    return {bytes / chunk_bytes_, bytes % chunk_bytes_ / device_.page_bytes()};
  }
  uint64_t bytes_of(const Amount& amount) const {
    return amount.chunks * chunk_bytes_ + amount.pages * device_.page_bytes();
  }

  // For a range of `bytes`, of what is kept and else made; kept memory of the other size is released where
  // it and what is made would be more than `most_bytes`.
  CUresult take(uint64_t bytes, uint64_t most_bytes, std::vector<driver::Page>* out);
  void keep(std::span<const driver::Page> pages);
  // Where the memory is filled and read.
  uint64_t home(CUmemGenericAllocationHandle handle) const;

  uint64_t kept_bytes() const;
  // What would have to be made for `amount`.
  uint64_t missing_bytes(const Amount& amount) const;
  // As measured; 0 until then.
  double made_bytes_per_us() const;
  // A spill may take so much: it is worth having ahead.
  void expect(const Amount& amount);
  // Makes one chunk or page of what is expected, if `most_bytes` allow it. False: there is nothing to make.
  bool make_ahead(uint64_t most_bytes);
  // Kept memory down to `most_bytes`.
  void release(uint64_t most_bytes);

 private:
  struct Piece {
    CUmemGenericAllocationHandle handle = 0;
    uint64_t bytes = 0;
    AddressRange home;
    bool mapped = false;
  };
  using Handles = std::vector<CUmemGenericAllocationHandle>;

  CUresult make(uint64_t bytes, CUmemGenericAllocationHandle* handle);
  CUresult map_home(Piece* piece);
  CUresult make_missing(Amount missing, Handles* out);
  void give_back(std::vector<Piece> pieces);
  bool give_back(Piece* piece);
  Amount take_kept(Amount wanted, Handles* out) SPILLWAY_REQUIRES(mutex_);
  Amount kept() const SPILLWAY_REQUIRES(mutex_) { return {chunks_.size(), pages_.size()}; }
  Amount still_expected() const SPILLWAY_REQUIRES(mutex_);
  std::vector<Piece> take_to_release(uint64_t most_bytes) SPILLWAY_REQUIRES(mutex_);
  void put_back(CUmemGenericAllocationHandle handle) SPILLWAY_REQUIRES(mutex_);

  Device& device_;
  const uint64_t chunk_bytes_;
  mutable Mutex<LockOrder::kHostMemory> mutex_;
  // All that can be used, and of that what is kept.
  std::unordered_map<CUmemGenericAllocationHandle, Piece> all_ SPILLWAY_GUARDED_BY(mutex_);
  Handles chunks_ SPILLWAY_GUARDED_BY(mutex_), pages_ SPILLWAY_GUARDED_BY(mutex_);
  std::vector<Piece> left_over_ SPILLWAY_GUARDED_BY(mutex_);  // the driver did not take it back whole
  Amount expected_ SPILLWAY_GUARDED_BY(mutex_);
  uint64_t being_made_bytes_ SPILLWAY_GUARDED_BY(mutex_) = 0;  // ahead
  double made_bytes_per_us_ SPILLWAY_GUARDED_BY(mutex_) = 0;
};

}  // namespace spillway
