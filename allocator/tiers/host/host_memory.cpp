#include "allocator/tiers/host/host_memory.h"

#include <algorithm>
#include <utility>

namespace spillway {
namespace {

// Made ahead of one spill: a third of a second's pinning.
constexpr uint64_t kMostAheadBytes = 1 << 30;

uint64_t less(uint64_t from, uint64_t bytes) {
  return from - std::min(from, bytes);
}

}  // namespace

CUresult HostMemory::map_home(Piece* piece) {
  if (const CUresult result = device_.reserve(piece->bytes, &piece->home); result != CUDA_SUCCESS)
    return result;
  const CUresult result = device_.map_for_itself(piece->home.begin, {piece->handle, piece->bytes});
  piece->mapped = result == CUDA_SUCCESS;
  return result;
}

CUresult HostMemory::make(uint64_t bytes, CUmemGenericAllocationHandle* handle) {
  Piece piece;
  piece.bytes = bytes;
  CUresult result = device_.create_elsewhere(Tier::kHost, {}, bytes, &piece.handle);
  if (result != CUDA_SUCCESS) return result;
  result = map_home(&piece);
  if (result != CUDA_SUCCESS) {
    give_back({piece});
    return result;
  }
  *handle = piece.handle;
  const Locked guard(mutex_);
  all_.emplace(piece.handle, piece);
  return CUDA_SUCCESS;
}

// The clock is the device's, which is the simulated driver's too.
CUresult HostMemory::make_missing(Amount missing, Handles* out) {
  const uint64_t bytes = bytes_of(missing), start_us = device_.clock_us();
  for (; !missing.none(); missing.chunks != 0 ? --missing.chunks : --missing.pages) {
    CUmemGenericAllocationHandle handle = 0;
    const CUresult result = make(missing.chunks != 0 ? chunk_bytes_ : device_.page_bytes(), &handle);
    if (result != CUDA_SUCCESS) return result;
    out->push_back(handle);
  }
  const uint64_t end_us = device_.clock_us();
  const Locked guard(mutex_);
  if (start_us != 0 && end_us > start_us)
    made_bytes_per_us_ = static_cast<double>(bytes) / static_cast<double>(end_us - start_us);
  return CUDA_SUCCESS;
}

// Returns what there was not. Pages stand in for chunks where they do that whole: making one takes longer.
HostMemory::Amount HostMemory::take_kept(Amount wanted, Handles* out) {
  const uint64_t pages_of_chunk = chunk_bytes_ / device_.page_bytes();
  const auto take = [&](Handles& from, uint64_t count) {
    out->insert(out->end(), from.end() - static_cast<std::ptrdiff_t>(count), from.end());
    from.resize(from.size() - count);
  };
  const uint64_t chunks = std::min<uint64_t>(wanted.chunks, chunks_.size());
  take(chunks_, chunks);
  const uint64_t over = less(pages_.size(), wanted.pages);
  const uint64_t by_pages = std::min(wanted.chunks - chunks, over / pages_of_chunk);
  take(pages_, by_pages * pages_of_chunk);
  const uint64_t pages = std::min<uint64_t>(wanted.pages, pages_.size());
  take(pages_, pages);
  return {wanted.chunks - chunks - by_pages, wanted.pages - pages};
}

CUresult HostMemory::take(uint64_t bytes, uint64_t most_bytes, std::vector<driver::Page>* out) {
  Handles taken;
  Amount missing;
  uint64_t being_made = 0;
  {
    const Locked guard(mutex_);
    missing = take_kept(amount_of(bytes), &taken);
    being_made = being_made_bytes_;
  }
  CUresult result = CUDA_SUCCESS;
  if (!missing.none()) {
    release(less(most_bytes, bytes + being_made));
    result = make_missing(missing, &taken);
  }
  const Locked guard(mutex_);
  for (const CUmemGenericAllocationHandle handle : taken) {
    if (result == CUDA_SUCCESS)
      out->push_back({handle, all_.at(handle).bytes});
    else
      put_back(handle);
  }
  return result;
}

void HostMemory::put_back(CUmemGenericAllocationHandle handle) {
  (all_.at(handle).bytes == chunk_bytes_ ? chunks_ : pages_).push_back(handle);
}

void HostMemory::keep(std::span<const driver::Page> pages) {
  const Locked guard(mutex_);
  for (const driver::Page& page : pages) put_back(page.handle);
}

uint64_t HostMemory::home(CUmemGenericAllocationHandle handle) const {
  const Locked guard(mutex_);
  return all_.at(handle).home.begin;
}

uint64_t HostMemory::kept_bytes() const {
  const Locked guard(mutex_);
  uint64_t bytes = bytes_of(kept()) + being_made_bytes_;
  for (const Piece& piece : left_over_) bytes += piece.bytes;
  return bytes;
}

uint64_t HostMemory::missing_bytes(const Amount& amount) const {
  const Locked guard(mutex_);
  const uint64_t over = less(pages_.size(), amount.pages);
  const uint64_t chunks = chunks_.size() + over / (chunk_bytes_ / device_.page_bytes());
  return bytes_of({less(amount.chunks, chunks), less(amount.pages, pages_.size())});
}

double HostMemory::made_bytes_per_us() const {
  const Locked guard(mutex_);
  return made_bytes_per_us_;
}

void HostMemory::expect(const Amount& amount) {
  const Locked guard(mutex_);
  expected_.chunks = std::max(expected_.chunks, std::min(amount.chunks, kMostAheadBytes / chunk_bytes_));
  expected_.pages = std::max(expected_.pages, std::min(amount.pages, kMostAheadBytes / device_.page_bytes()));
}

HostMemory::Amount HostMemory::still_expected() const {
  return {less(expected_.chunks, chunks_.size()), less(expected_.pages, pages_.size())};
}

bool HostMemory::make_ahead(uint64_t most_bytes) {
  uint64_t bytes = 0;
  {
    const Locked guard(mutex_);
    const Amount wanted = still_expected();
    if (wanted.none()) return false;
    for (const auto& [count, size] :
         {std::pair(wanted.chunks, chunk_bytes_), std::pair(wanted.pages, device_.page_bytes())})
      if (bytes == 0 && count != 0 && size <= most_bytes) bytes = size;
    if (bytes == 0) return false;
    being_made_bytes_ += bytes;
  }
  CUmemGenericAllocationHandle handle = 0;
  const CUresult result = make(bytes, &handle);
  const Locked guard(mutex_);
  being_made_bytes_ -= bytes;
  if (result == CUDA_SUCCESS) put_back(handle);
  return result == CUDA_SUCCESS;
}

bool HostMemory::give_back(Piece* piece) {
  if (piece->mapped && device_.unmap(piece->home.begin, piece->bytes) != CUDA_SUCCESS) return false;
  piece->mapped = false;
  if (piece->home.bytes() != 0 && device_.release_range(piece->home) != CUDA_SUCCESS) return false;
  piece->home = {};
  return device_.release(piece->handle) == CUDA_SUCCESS;
}

void HostMemory::give_back(std::vector<Piece> pieces) {
  std::erase_if(pieces, [this](Piece& piece) { return give_back(&piece); });
  const Locked guard(mutex_);
  left_over_.insert(left_over_.end(), pieces.begin(), pieces.end());
}

// The largest first, and what is left over of earlier tries. The driver may give a handle's number out again
// as soon as it has it back.
std::vector<HostMemory::Piece> HostMemory::take_to_release(uint64_t most_bytes) {
  std::vector<Piece> out = std::exchange(left_over_, {});
  uint64_t left = bytes_of(kept());
  for (Handles* kept : {&chunks_, &pages_}) {
    while (left > most_bytes && !kept->empty()) {
      out.push_back(all_.extract(kept->back()).mapped());
      left -= out.back().bytes;
      kept->pop_back();
    }
  }
  return out;
}

void HostMemory::release(uint64_t most_bytes) {
  std::vector<Piece> going;
  {
    const Locked guard(mutex_);
    going = take_to_release(most_bytes);
  }
  give_back(std::move(going));
}

}  // namespace spillway
