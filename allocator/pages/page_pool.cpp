#include "allocator/pages/page_pool.h"

#include <utility>

namespace spillway {

void PagePool::reserve_spare(PageReservation* own, uint64_t bytes, uint64_t largest) {
  Pages left;
  while (!spare_.empty() && own->in_pages() < bytes) {
    const driver::Page page = spare_.back();
    spare_.pop_back();
    if (page.bytes > std::min(largest, bytes - own->in_pages())) {
      left.push_back(page);
      continue;
    }
    own->add(page);
    spare_bytes_ -= page.bytes;
    reserved_ += page.bytes;
  }
  spare_.insert(spare_.end(), left.rbegin(), left.rend());
}

bool PagePool::promise(PageReservation* own, uint64_t bytes) {
  if (!quota_.draw(bytes)) return false;
  own->promised_bytes += bytes;
  reserved_ += bytes;
  return true;
}

void PagePool::take_promise_back(PageReservation* own) {
  reserved_ -= own->promised_bytes;
  quota_.give_back(own->promised_bytes);
  own->promised_bytes = 0;
}

void PagePool::put_back(PageReservation* own) {
  reserved_ -= own->in_pages();
  take_promise_back(own);
  if (own->source_bytes != 0) segment_is_gone(std::exchange(own->source_bytes, 0));
  keep(own->take());
}

void PagePool::map_promised(PageReservation* own, uint64_t bytes) {
  own->promised_bytes -= bytes;
  map(bytes);
  note_peak();
}

bool PagePool::set_aside_for_source(PageReservation* own, uint64_t bytes) {
  const uint64_t missing = bytes - std::min(bytes, own->source_bytes);
  if (missing > own->promised_bytes + quota_.room_below_limit()) return false;
  take_promise_back(own);
  if (!quota_.draw_for_source(missing)) return false;
  own->source_bytes += missing;
  reserved_ += missing;
  return true;
}

void PagePool::segment_is_made(PageReservation* own, uint64_t bytes) {
  own->source_bytes -= bytes;
  map(bytes);
  note_peak();
}

PagePool::Pages PagePool::take_spare(uint64_t bytes, Round round) {
  Pages pages, stay;
  uint64_t taken = 0;
  for (; !spare_.empty() && taken < bytes; spare_.pop_back()) {
    const driver::Page& page = spare_.back();
    const bool fits = round == Round::kUp || page.bytes <= bytes - taken;
    (fits ? pages : stay).push_back(page);
    taken += fits ? page.bytes : 0;
  }
  spare_.insert(spare_.end(), stay.rbegin(), stay.rend());
  spare_bytes_ -= taken;
  reserved_ += taken;
  return pages;
}

void PagePool::settle_release(uint64_t released, const Pages& kept) {
  reserved_ -= released + bytes_of(kept);
  quota_.give_back(released);
  keep(kept);
}

void PagePool::keep(const Pages& pages) {
  spare_.insert(spare_.end(), pages.begin(), pages.end());
  spare_bytes_ += bytes_of(pages);
}

}  // namespace spillway
