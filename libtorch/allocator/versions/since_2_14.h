// 2.14 added: an allocator says whether it records what setUserMetadata sets, and takes annotations of live
// blocks, which are entries of the history. (Segments of pinned host memory in a snapshot are PyTorch's own
// to fill in.)
#pragma once
#include "libtorch/allocator/versions/since_2_13.h"

#if SPILLWAY_LIBTORCH >= 214
namespace spillway::libtorch {

class Since2_14 : public Since2_13 {
 public:
  bool supportsUserMetadata() override { return true; }
  void annotateMemory(const void* block, const std::string& metadata) override {
    annotate_block(block, metadata);
  }
};

}  // namespace spillway::libtorch
#endif
