// The versions of NVIDIA's libraries that PyTorch's wheels require, for those stand-ins whose version PyTorch
// looks at: it refuses an older cuDNN than it was built with, and chooses among attention kernels and NCCL's
// functions by them.
//
// Thread-safety: any thread. Errors, ownership, units: none.
#pragma once

namespace spillway::stand_in {

struct Pinned {
  unsigned torch_minor;  // of PyTorch 2
  int cudnn, nccl;       // as cudnnGetVersion and ncclGetVersion give them
};

// Those of the PyTorch in the process; of the newest one that is known where there is none, or a newer one.
const Pinned& pinned_versions();

}  // namespace spillway::stand_in
