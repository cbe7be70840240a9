// The calls of one group on one stream of one communicator: for the driver one piece of work whose end the
// other ranks decide.
//
// Thread-safety: `left` and `failed` are for any thread; the rest is constant once it is submitted.
// Ownership: shared by the driver, while streams depend on it, and by the communicator, until its calls are
// done. Errors: none. Units: none.
#pragma once
#include <atomic>
#include <memory>
#include <vector>

#include "simulator/libraries/nccl/api/call.h"

namespace spillway::nccl {

class Communicator;

struct Work {
  std::shared_ptr<Communicator> communicator;
  std::vector<Call> calls;
  std::atomic<size_t> left{0};  // calls that others have not joined yet
};

}  // namespace spillway::nccl
