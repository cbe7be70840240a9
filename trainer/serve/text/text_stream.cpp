#include "trainer/serve/text/text_stream.h"

#include <algorithm>
#include <utility>

#include "base/utf8.h"

namespace spillway::trainer::serve {
namespace {

// How many bytes at the end could begin a character whose rest is still to come.
size_t unfinished_bytes(std::string_view text) {
  for (size_t back = 1; back <= std::min<size_t>(3, text.size()); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xC0) == 0x80) continue;  // not its first
    const size_t length = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC0 ? 2 : 1;
    return length > back ? back : 0;
  }
  return 0;
}

}  // namespace

size_t TextStream::held_for_stops() const {
  size_t held = 0;
  for (const std::string& stop : stops_)
    for (size_t length = std::min(stop.size() - 1, pending_.size()); length > held; --length)
      if (pending_.ends_with(std::string_view(stop).substr(0, length))) held = length;
  return held;
}

std::string TextStream::add(std::string_view bytes) {
  if (stopped_) return "";
  pending_ += bytes;
  size_t end = std::string::npos;
  for (const std::string& stop : stops_) end = std::min(end, pending_.find(stop));
  if (end != std::string::npos) {
    pending_.resize(end);
    std::string text = finish();
    stopped_ = true;
    return text;
  }
  const size_t shown = pending_.size() - held_for_stops();
  const std::string_view whole(pending_.data(), shown - unfinished_bytes({pending_.data(), shown}));
  std::string text = valid_utf8(whole);
  pending_.erase(0, whole.size());
  return text;
}

std::string TextStream::finish() {
  return valid_utf8(std::exchange(pending_, {}));
}

}  // namespace spillway::trainer::serve
