#include "allocator/pages/page_pool.h"

namespace spillway {

void PagePool::reserve_spare(PageReservation* own, uint64_t bytes) {
  while (!spare_.empty() && own->in_pages() < bytes) {
    own->pages.push_back(spare_.back());
    spare_.pop_back();
    reserved_ += page_bytes_;
  }
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
  spare_.insert(spare_.end(), own->pages.begin(), own->pages.end());
  own->pages.clear();
}

void PagePool::map_promised(PageReservation* own, uint64_t bytes) {
  own->promised_bytes -= bytes;
  map(bytes);
  note_peak();
}

PagePool::Pages PagePool::take_spare(uint64_t bytes) {
  Pages pages;
  while (!spare_.empty() && pages.size() * page_bytes_ < bytes) {
    pages.push_back(spare_.back());
    spare_.pop_back();
    reserved_ += page_bytes_;
  }
  return pages;
}

void PagePool::settle_release(uint64_t released, const Pages& kept) {
  reserved_ -= released + kept.size() * page_bytes_;
  quota_.give_back(released);
  spare_.insert(spare_.end(), kept.begin(), kept.end());
}

}  // namespace spillway
