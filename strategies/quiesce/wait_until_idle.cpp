#include "strategies/quiesce/wait_until_idle.h"

#include <memory>

#include "allocator/pages/idle_pages.h"
#include "strategies/framework/deadline_worker.h"

namespace spillway {
struct WaitUntilIdle;

bool wait_until_idle(Allocator& allocator, std::chrono::steady_clock::time_point deadline,
                     const std::function<bool()>& stop) {
  // Shared with the thread, which may still write it when nobody waits any more.
  const auto idle = std::make_shared<bool>(false);
  const auto work = [&allocator, idle] { *idle = wait_until_all_idle(allocator); };
  return DeadlineWorker::of<WaitUntilIdle>().run_when_free(work, deadline, stop) && *idle;
}

}  // namespace spillway
