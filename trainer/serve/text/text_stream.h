// The text of a sequence while it is made: bytes in, well-formed UTF-8 out, up to the first stop.
//
// What may still become a stop, or the rest of a character, is held back. A byte that belongs to no character
// becomes U+FFFD.
//
// Thread-safety: one thread. Ownership: owns what it holds. Errors: none.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace spillway::trainer::serve {

class TextStream {
 public:
  explicit TextStream(std::vector<std::string> stops = {}) : stops_(std::move(stops)) {}

  // What can be shown now. Nothing more after a stop.
  std::string add(std::string_view bytes);
  // The rest.
  std::string finish();
  bool stopped() const { return stopped_; }

 private:
  size_t held_for_stops() const;

  std::vector<std::string> stops_;
  std::string pending_;
  bool stopped_ = false;
};

}  // namespace spillway::trainer::serve
