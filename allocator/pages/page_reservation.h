// Pages set aside for one request, and budget to create others: nobody else can take them.
//
// Thread-safety: who made it; the page pool counts what is in it. Ownership: of its pages, until they are
// mapped or put back. Units: bytes.
#pragma once
#include <cuda.h>

#include <cstdint>
#include <vector>

namespace spillway {

class PageReservation {
 public:
  explicit PageReservation(uint64_t page_bytes) : page_bytes_(page_bytes) {}
  uint64_t bytes() const noexcept { return in_pages() + promised_bytes; }
  uint64_t in_pages() const noexcept { return pages.size() * page_bytes_; }

  std::vector<CUmemGenericAllocationHandle> pages;
  uint64_t promised_bytes = 0;  // counted as held, without pages

 private:
  uint64_t page_bytes_;
};

}  // namespace spillway
