// The steps of a program, as far as its history of memory shows them.
//
// Thread-safety: plain values. Errors: none; a history without steps has none.
#pragma once
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "tools/spillway/history/history.h"

namespace spillway::tools {

// Before which events the program's steps began: as it or its optimizer said, or where what is in use fell
// after it had risen.
class Steps {
 public:
  // Of the events before `until`.
  Steps(const DeviceHistory& device, size_t until);
  // Before which events they began, in order.
  explicit Steps(std::vector<size_t> starts) : starts_(std::move(starts)) {}

  // Where neither the program nor its optimizer said them.
  bool are_guessed() const { return are_guessed_; }
  uint64_t count() const { return starts_.size(); }
  const std::vector<size_t>& starts() const { return starts_; }
  std::optional<size_t> last() const {
    return starts_.empty() ? std::nullopt : std::optional(starts_.back());
  }
  // The number of the step in which an event happened; 0 is before the first.
  size_t of(size_t event) const;

 private:
  bool by_optimizers(const DeviceHistory& device, size_t until);
  void by_notes(const DeviceHistory& device, size_t until);
  void by_waves(const DeviceHistory& device, size_t until);
  bool free_what_they_take(const DeviceHistory& device) const;

  std::vector<size_t> starts_;
  bool are_guessed_ = false;
};

}  // namespace spillway::tools
