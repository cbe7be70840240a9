// Pages set aside for one request, and budget to create others: nobody else can take them.
//
// Thread-safety: who made it; the page pool counts what is in it. Ownership: of its pages, until they are
// mapped or put back. Units: bytes.
#pragma once
#include <cuda.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "driver/mapping.h"

namespace spillway {

// What is done about a handle that is larger than what is still asked of whole ones.
enum class Round : uint8_t { kUp, kDown };

inline uint64_t bytes_of(const std::vector<driver::Page>& pages) {
  uint64_t bytes = 0;
  for (const driver::Page& page : pages) bytes += page.bytes;
  return bytes;
}

class PageReservation {
 public:
  uint64_t bytes() const noexcept { return in_pages_ + promised_bytes; }
  uint64_t in_pages() const noexcept { return in_pages_; }
  const std::vector<driver::Page>& pages() const noexcept { return pages_; }

  void add(const driver::Page& page) {
    pages_.push_back(page);
    in_pages_ += page.bytes;
  }
  void add(std::span<const driver::Page> pages) {
    for (const driver::Page& page : pages) add(page);
  }
  // All of them, out of the reservation.
  std::vector<driver::Page> take() {
    in_pages_ = 0;
    return std::exchange(pages_, {});
  }
  void remove(const driver::Page& page) {
    const auto found = std::ranges::find(pages_, page.handle, &driver::Page::handle);
    if (found == pages_.end()) return;
    in_pages_ -= found->bytes;
    pages_.erase(found);
  }

  // Whether the last pages, from the back, fill runs of so many bytes one after the other.
  bool fills(std::span<const uint64_t> runs) const {
    auto page = pages_.rbegin();
    for (uint64_t run : runs) {
      for (; run != 0; ++page) {
        if (page == pages_.rend() || page->bytes > run) return false;
        run -= page->bytes;
      }
    }
    return true;
  }
  // Those from the back that have `bytes`, in this order; and out of the reservation.
  std::vector<driver::Page> last(uint64_t bytes) const {
    std::vector<driver::Page> out;
    for (auto page = pages_.rbegin(); bytes != 0; ++page) {
      out.push_back(*page);
      bytes -= page->bytes;
    }
    return out;
  }
  std::vector<driver::Page> take_last(uint64_t bytes) {
    std::vector<driver::Page> out = last(bytes);
    pages_.resize(pages_.size() - out.size());
    in_pages_ -= bytes;
    return out;
  }

  uint64_t promised_bytes = 0;  // counted as held, without pages
  uint64_t source_bytes = 0;    // the same, for a segment of a pool's own source

 private:
  std::vector<driver::Page> pages_;
  uint64_t in_pages_ = 0;
};

}  // namespace spillway
