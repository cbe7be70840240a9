#include "trainer/data/tokens.h"

#include <cstring>

namespace spillway::trainer {
namespace {

template <typename Stored>
void copy_as(const std::byte* from, std::span<int64_t> to) {
  for (int64_t& token : to) {
    Stored stored;
    std::memcpy(&stored, from, sizeof stored);
    token = stored;
    from += sizeof stored;
  }
}

}  // namespace

void TokenView::copy(uint64_t first, std::span<int64_t> to) const {
  const std::byte* from = data_.data() + first * width_;
  if (width_ == sizeof(uint8_t))
    copy_as<uint8_t>(from, to);
  else if (width_ == sizeof(uint16_t))
    copy_as<uint16_t>(from, to);
  else
    copy_as<int32_t>(from, to);
}

}  // namespace spillway::trainer
