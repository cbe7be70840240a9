#include "allocator/pages/supply/page_supply.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "allocator/accounting/journal.h"

namespace spillway {

// Which pages lie where: the largest that fits first.
struct PageSupply::Layout {
  Layout(const std::vector<driver::Page>& pages, std::span<const uint64_t> sizes) {
    std::map<uint64_t, std::vector<driver::Page>> by_size;
    for (const driver::Page& page : pages) by_size[page.bytes].push_back(page);
    for (uint64_t bytes : sizes) {
      Run run{.missing = bytes};
      for (auto fits = by_size.upper_bound(run.missing); fits != by_size.begin();
           fits = by_size.upper_bound(run.missing)) {
        --fits;
        run.add(fits->second.back());
        fits->second.pop_back();
        if (fits->second.empty()) by_size.erase(fits);
      }
      runs.push_back(std::move(run));
    }
    for (const auto& [unused, left] : by_size) unfit.insert(unfit.end(), left.begin(), left.end());
  }

  uint64_t missing() const {
    uint64_t bytes = 0;
    for (const Run& run : runs) bytes += run.missing;
    return bytes;
  }
  void put_into(PageReservation* own) const {
    own->add(unfit);
    for (auto run = runs.rbegin(); run != runs.rend(); ++run)
      for (auto page = run->pages.rbegin(); page != run->pages.rend(); ++page) own->add(*page);
  }

  struct Run {
    void add(const driver::Page& page) {
      pages.push_back(page);
      missing -= page.bytes;
    }
    uint64_t missing = 0;
    std::vector<driver::Page> pages{};
  };
  std::vector<Run> runs;
  std::vector<driver::Page> unfit;  // larger than every gap that is left
};

Supplied PageSupply::fill(PageReservation* own, std::span<const uint64_t> runs, CUresult* error) {
  if (!reserve(own, runs)) return Supplied::kNoRoom;
  if (own->fills(runs)) return Supplied::kYes;
  Layout layout(own->take(), runs);
  Supplied supplied = Supplied::kNoRoom;
  // A driver that is full before the quota is has none but what is given back to it.
  for (const From from : {From::kQuota, From::kHandles}) {
    if (!make_room(own, layout, from)) break;
    *error = create(own, layout);
    supplied = *error == CUDA_SUCCESS ? Supplied::kYes : Supplied::kRefused;
    if (*error != CUDA_ERROR_OUT_OF_MEMORY) break;
  }
  layout.put_into(own);
  return supplied;
}

// Spare pages that fit. False: even with handles divided there would be too little.
bool PageSupply::reserve(PageReservation* own, std::span<const uint64_t> runs) {
  const uint64_t need = std::accumulate(runs.begin(), runs.end(), uint64_t{0});
  const Locked guard(heap_.lock);
  heap_.pages.reserve_spare(own, need, runs.empty() ? 0 : *std::ranges::max_element(runs));
  return heap_.pages.obtainable(*own) >= need;
}

// Budget for what is missing: of the quota first, then of handles that fit nowhere.
bool PageSupply::make_room(PageReservation* own, Layout& layout, From from) {
  for (;;) {
    std::vector<driver::Page> divided;
    {
      const Locked guard(heap_.lock);
      const auto lacking = [&] { return layout.missing() - std::min(layout.missing(), own->promised_bytes); };
      if (from == From::kQuota)
        (void)heap_.pages.promise(own, std::min(lacking(), heap_.pages.quota().room()));
      if (lacking() == 0) return true;
      divided = layout.unfit.empty() ? heap_.pages.take_spare(lacking()) : std::exchange(layout.unfit, {});
    }
    const uint64_t released = reclaimer_.release(divided);
    own->promised_bytes += released;
    layout.unfit.insert(layout.unfit.end(), divided.begin(), divided.end());
    if (released == 0) return false;
  }
}

CUresult PageSupply::create(PageReservation* own, Layout& layout) {
  for (Layout::Run& run : layout.runs) {
    while (run.missing != 0) {
      driver::Page page;
      const CUresult result = create_one(run.missing, &page);
      if (result != CUDA_SUCCESS) {
        // What the driver does not have is not held either.
        const Locked guard(heap_.lock);
        heap_.pages.take_promise_back(own);
        return result;
      }
      own->promised_bytes -= page.bytes;
      run.add(page);
    }
  }
  return CUDA_SUCCESS;
}

uint64_t PageSupply::next_size(uint64_t most_bytes) {
  bool ask = false;
  {
    const Locked guard(heap_.lock);
    ask = heap_.handles.must_ask();
  }
  const uint64_t free = ask ? heap_.device->free_bytes(0) : 0;
  const Locked guard(heap_.lock);
  if (ask) heap_.handles.see_free(free);
  return heap_.handles.next(most_bytes, heap_.pages.quota().room());
}

CUresult PageSupply::create_one(uint64_t most_bytes, driver::Page* page) {
  page->bytes = next_size(most_bytes);
  const CUresult result = heap_.device->create(page->bytes, &page->handle);
  journal::page(heap_, trace::Kind::kPageCreate, page->handle, page->bytes, result);
  const bool large = page->bytes > heap_.page_bytes;
  {
    const Locked guard(heap_.lock);
    if (result == CUDA_SUCCESS) heap_.handles.created(page->bytes);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) heap_.handles.refused();
  }
  return result == CUDA_ERROR_OUT_OF_MEMORY && large ? create_one(heap_.page_bytes, page) : result;
}

}  // namespace spillway
