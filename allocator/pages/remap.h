// Other memory behind an address range, with the same bytes in it. Of the old and the new memory, that of
// fewer handles is mapped beside the range too, so that the other one's pages are mapped once: the new memory
// is filled there and then put in, or put in and filled from the old memory there. Begun for several ranges
// before the first is finished, so that copies run beside the driver's other work, and one is finished beside
// later ones' copies.
//
// Thread-safety: none; nothing may use the range meanwhile. Ownership: the pages stay the caller's. Errors:
// CUresult; then the range has its old pages. Where even these cannot be mapped again, the context is not
// usable any more, and `lost` says so.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "allocator/pages/device.h"

namespace spillway {

// Addresses beside the range, while its new memory is filled.
struct Staging {
  AddressRange range;
  bool mapped = false;
  // False: the driver refused, and it is to be tried again.
  bool drop(Device& device);
};

class Remap {
 public:
  Remap(Device& device, AddressRange range, std::vector<driver::Page> from, std::vector<driver::Page> to)
      : device_(&device), range_(range), from_(std::move(from)), to_(std::move(to)) {}

  // Queues the copy.
  CUresult begin();
  // Waits for the copy; the range has the new pages then. On an error nothing is left to undo.
  CUresult finish();
  // After a failed `begin`.
  void undo() { staging_.drop(*device_); }
  bool lost() const { return lost_; }
  // Of the copy alone, after `finish`; 0 where it is not known.
  double copy_us() const { return copy_us_; }
  // What the driver has not taken back.
  const Staging& left_over() const { return staging_; }

 private:
  bool stages_old() const { return from_.size() < to_.size(); }
  CUresult begin_with_new_beside();
  CUresult begin_with_old_beside();
  CUresult put_old_back(CUresult result);

  Device* device_;
  AddressRange range_;
  std::vector<driver::Page> from_, to_;
  Staging staging_;
  CopyStream::Copy copy_;
  double copy_us_ = 0;
  bool lost_ = false;
};

}  // namespace spillway
