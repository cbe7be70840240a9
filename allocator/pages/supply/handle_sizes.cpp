#include "allocator/pages/supply/handle_sizes.h"

#include <algorithm>

namespace spillway {
namespace {
// What is free is learnt again when a part of it has been created.
constexpr uint64_t kAskedShare = 8, kLeastBetween = uint64_t{64} << 20;
}  // namespace

bool HandleSizes::must_ask() const {
  return rule_.most_bytes > page_bytes_ && until_asked_ == 0;
}

void HandleSizes::see_free(uint64_t free_bytes) {
  free_ = free_bytes;
  until_asked_ = std::max(free_bytes / kAskedShare, kLeastBetween);
}

void HandleSizes::created(uint64_t bytes) {
  free_ -= std::min(free_, bytes);
  until_asked_ -= std::min(until_asked_, bytes);
}

void HandleSizes::released(uint64_t bytes) {
  free_ += bytes;
}

void HandleSizes::refused() {
  free_ = 0;
}

uint64_t HandleSizes::next(uint64_t lacking, uint64_t room) const {
  const uint64_t most = std::min({rule_.most_bytes, std::min(free_, room) / rule_.share, lacking});
  return std::max(most / page_bytes_ * page_bytes_, page_bytes_);
}

}  // namespace spillway
