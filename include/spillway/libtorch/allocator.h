// Spillway as LibTorch's CUDA allocator, for programs that link LibTorch and the shim for its
// version (libspillway_torch_2_11.so for 2.11).
//
// Install before CUDA initialises. From then on an allocation failure that only a change of plan can serve is
// thrown as PlanChange, every other one as c10::OutOfMemoryError; PyTorch code that catches the latter
// catches both. A failure on an autograd thread is rethrown, with its type, by the call that started the
// backward pass. Thread-safety: as LibTorch's own allocator, from any thread. Units: bytes.
#pragma once
#include <c10/util/Exception.h>

#include <cstdint>
#include <string>

#include "spillway/spillway.h"

namespace spillway::libtorch {

// The request can be served only after the step unwinds and the program applies `move`, then tries again.
class SPILLWAY_API PlanChange : public c10::OutOfMemoryError {
 public:
  PlanChange(c10::SourceLocation where, std::string message, uint64_t incident, spillway_strategy_id move);
  ~PlanChange() override;

  uint64_t incident() const noexcept { return incident_; }
  spillway_strategy_id move() const noexcept { return move_; }

 private:
  uint64_t incident_;
  spillway_strategy_id move_;
};

}  // namespace spillway::libtorch

extern "C" {
// Makes Spillway LibTorch's CUDA allocator. 0: done, or done before; else spillway_torch_error() says why not
// and the native allocator stays.
SPILLWAY_API int spillway_torch_install(void);
// Empties the cache of LibTorch's own allocator, if that is the one in use. 0: done.
SPILLWAY_API int spillway_torch_empty_native_cache(void);
// Why the last spillway_torch_install() of this process failed; "" if it did not.
SPILLWAY_API const char* spillway_torch_error(void);
}
