// Who called: the library behind a failed call of the driver, found on the stack of the calling thread.
//
// Thread-safety: any thread; takes the loader's lock for a moment, so no lock that a library's initialiser
// may wait for may be held. Errors: an unknown caller has no name.
#pragma once
#include <string>

namespace spillway {

struct CallOrigin {
  std::string library;            // its file's name: the first that is none of CUDA's and none of Spillway's
  bool inside_framework = false;  // LibTorch's CUDA allocator is on the stack: it may hold its locks
  bool inside_nccl2 = false;      // it is NCCL, called by LibTorch's backend nccl2
  bool on_nccls_thread = false;   // it is NCCL, on a thread of its own, for which some caller waits
};

CallOrigin find_call_origin();

}  // namespace spillway
