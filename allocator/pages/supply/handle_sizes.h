// How large the next handle is, an allocation of the driver's that is mapped and unmapped whole. Large while
// much is free, because a call of the driver takes about as long for one page as for many; single pages as
// the limit comes near, because what lies idle in a part of a handle serves nobody else.
//
// Thread-safety: guarded by the heap's lock. Errors: none. Units: bytes.
#pragma once
#include <cstdint>

namespace spillway {

// A handle has at most `most_bytes`, and at most one `share`-th of what is free.
struct HandleRule {
  uint64_t most_bytes = uint64_t{2} << 20;  // single pages
  uint64_t share = 64;
};

// Where handles that are partly in use can be divided; docs/decisions.md has the measured frontier.
inline constexpr HandleRule kLargeHandles{.most_bytes = uint64_t{32} << 20, .share = 64};

class HandleSizes {
 public:
  HandleSizes(uint64_t page_bytes, const HandleRule& rule) : page_bytes_(page_bytes), rule_(rule) {}

  // Whether the driver is to be asked what is free before more is created: not each time, since that may take
  // longer than creating.
  bool must_ask() const;
  void see_free(uint64_t free_bytes);
  void created(uint64_t bytes);
  void released(uint64_t bytes);
  // The driver had no room for a large handle: single pages, until it is asked again.
  void refused();
  // Of at most `lacking` bytes, where the quota leaves `room`.
  uint64_t next(uint64_t lacking, uint64_t room) const;

 private:
  const uint64_t page_bytes_;
  const HandleRule rule_;
  uint64_t free_ = 0;         // as the driver said, less what was created since
  uint64_t until_asked_ = 0;  // bytes to create until it is asked again
};

}  // namespace spillway
