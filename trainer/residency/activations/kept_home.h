// Where what one layer keeps is between its forward and its backward: in blocks of the host or of a peer, or
// in a file on an NVMe disk.
//
// Thread-safety: one thread at a time. Ownership: the bytes, which go with it. Errors: c10::OutOfMemoryError
// where its place has no room; ActivationsLost. Units: bytes.
#pragma once
#include <functional>
#include <stdexcept>
#include <vector>

#include "trainer/residency/copy_stream.h"

namespace spillway::trainer {

// What layers keep cannot be had back: their micro-batch has to be computed again.
struct ActivationsLost : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class KeptHome {
 public:
  // Is given memory for each storage of the layer, in their order, and queues copies with it on the stream.
  // Returns the mark behind them.
  using Copies = std::function<CopyStream::Mark(const std::vector<at::Tensor>&)>;

  virtual ~KeptHome() = default;
  // Once. On an exception nothing was queued.
  virtual void write(CopyStream& by, const Copies& copies) = 0;
  virtual void read(CopyStream& by, const Copies& copies) = 0;
};

}  // namespace spillway::trainer
