// What a pickle keeps for later use: its memo. Python's writer keeps every text, list and dictionary, and
// uses few of them again; of a history with millions of events the rest would be most of the memory. So the
// file is looked through once for what it uses, and only that is kept.
//
// Thread-safety: one thread. Bounds: memory in proportion to the file.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "tools/spillway/snapshot/pickle/byte_stream.h"

namespace spillway::tools {

class PickleMemo {
 public:
  // Looks through the instructions up to the end, or to the first that makes no sense.
  void look_through(ByteStream* bytes);

  // That the file makes, whatever becomes of them.
  uint64_t dictionaries() const { return dictionaries_; }
  bool is_used(uint64_t index) const { return index < used_.size() && used_[index]; }
  // REQUIRES: is_used(index).
  void keep(uint64_t index, uint32_t value);
  std::optional<uint32_t> find(uint64_t index) const;

 private:
  static constexpr uint32_t kUnset = UINT32_MAX;
  static constexpr size_t kPage = 1024;
  using Page = std::array<uint32_t, kPage>;

  void use(uint64_t index, uint64_t most);

  uint64_t dictionaries_ = 0;
  std::vector<bool> used_;
  std::vector<std::unique_ptr<Page>> pages_;
};

}  // namespace spillway::tools
