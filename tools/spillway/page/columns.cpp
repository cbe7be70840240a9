#include "tools/spillway/page/columns.h"

#include <algorithm>

namespace spillway::tools {
namespace {

constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

}  // namespace

void Column::put(uint64_t number) {
  for (; number > 0x7F; number >>= 7) bytes_ += static_cast<char>((number & 0x7F) | 0x80);
  bytes_ += static_cast<char>(number);
}

void Column::add(uint64_t number) {
  put(std::min(number, kLargest));
}

void Column::add_step_to(uint64_t number) {
  const uint64_t to = std::min(number, kLargest / 2);  // the sign takes a bit
  put(to >= last_ ? (to - last_) * 2 : (last_ - to) * 2 - 1);
  last_ = to;
}

std::string Column::base64() const {
  return base64_of(bytes_);
}

std::string base64_of(std::string_view bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t count = std::min<size_t>(3, bytes.size() - i);
    uint32_t bits = 0;
    for (size_t k = 0; k < 3; ++k)
      bits = bits << 8 | (k < count ? static_cast<uint8_t>(bytes[i + k]) : uint32_t{0});
    for (size_t k = 0; k < 4; ++k) text += k <= count ? kDigits[bits >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

std::vector<uint64_t> numbers_of(std::string_view base64) {
  std::vector<uint64_t> numbers;
  uint64_t number = 0;
  uint32_t shift = 0, bits = 0, held = 0;
  for (const char digit : base64) {
    if (digit == '=') break;
    bits = bits << 6 | static_cast<uint32_t>(kDigits.find(digit));
    held += 6;
    if (held < 8) continue;
    held -= 8;
    const uint32_t byte = bits >> held & 0xFF;
    number |= uint64_t{byte & 0x7F} << shift;
    shift += 7;
    if (byte & 0x80) continue;
    numbers.push_back(number);
    number = shift = 0;
  }
  return numbers;
}

}  // namespace spillway::tools
