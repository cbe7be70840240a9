// Texts that stay where they are, in pieces of memory.
//
// Thread-safety: one thread. Ownership: the views that `keep` gives are good while the arena lives.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

namespace spillway::tools {

class TextArena {
 public:
  std::string_view keep(std::string_view text) {
    if (text.size() > left_) {
      left_ = std::max(kPiece, text.size());
      pieces_.push_back(std::make_unique_for_overwrite<char[]>(left_));
      next_ = pieces_.back().get();
    }
    if (!text.empty()) std::memcpy(next_, text.data(), text.size());
    const std::string_view kept(next_, text.size());
    next_ += text.size();
    left_ -= text.size();
    return kept;
  }

 private:
  static constexpr size_t kPiece = size_t{64} << 10;
  std::vector<std::unique_ptr<char[]>> pieces_;
  char* next_ = nullptr;
  size_t left_ = 0;
};

}  // namespace spillway::tools
