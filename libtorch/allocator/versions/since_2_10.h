// 2.10 added: each trace entry carries what setUserMetadata sets, and the segments that expandable_segments
// grew are told, of which Spillway has none.
#pragma once
#include <string>
#include <vector>

#include "libtorch/allocator/versions/before_2_11.h"

namespace spillway::libtorch {

#if SPILLWAY_LIBTORCH >= 210
class Since2_10 : public Oldest {
 public:
  std::vector<native::StreamSegmentSize> getExpandableSegmentSizes(c10::DeviceIndex) override { return {}; }
  void setUserMetadata(const std::string& metadata) override { History::user_metadata() = metadata; }
  std::string getUserMetadata() override { return History::user_metadata(); }
};
#else
using Since2_10 = Oldest;
#endif

}  // namespace spillway::libtorch
