// Calls of the driver that other libraries made and that failed for want of memory: an incident each, on the
// same ladder as the requests of Spillway's own allocator.
//
// Thread-safety: any thread; one rescue at a time per device. A caller inside LibTorch's allocator holds its
// lock, which the rescue under way may need: it does not wait for its turn. Errors: a status; the call's own
// result stays with the caller.
#pragma once
#include <array>
#include <condition_variable>

#include "base/mutex.h"
#include "strategies/core/core.h"
#include "strategies/ladder/ladder.h"

namespace spillway {

class DriverCallers {
 public:
  DriverCallers(Allocator& allocator, Ladder& ladder) : allocator_(allocator), ladder_(ladder) {}

  spillway_status rescue(const spillway_driver_request& request, int (*try_again)(void*), void* context);
  // Takes no turn: there is nothing to free.
  spillway_status note_host_failure(const spillway_driver_request& request, bool is_done_again,
                                    uint64_t* number);

  // LibTorch's allocator is about to refuse a request; an incident where its failure has not been told.
  spillway_status note_framework_failure(int device, uint64_t bytes);

 private:
  class Turn;

  Allocator& allocator_;
  Ladder& ladder_;
  Mutex<LockOrder::kDriverCallers> mutex_;
  std::condition_variable_any over_;
  std::array<bool, Allocator::kMaxDevices> taken_ SPILLWAY_GUARDED_BY(mutex_){};
};

}  // namespace spillway
