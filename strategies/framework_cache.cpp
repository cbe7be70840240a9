// Another library's call fails while LibTorch's allocator hoards idle memory: that goes back to the driver.
// Not where LibTorch itself is the caller, which holds its allocator's lock and empties its cache by itself;
// and on a thread of ours, so that a lock that another thread holds, or a collective that other ranks have
// not joined, ends the attempt and not the program.
#include <algorithm>
#include <cstdio>

#include "allocator/costs.h"
#include "strategies/core/free_bytes.h"
#include "strategies/framework/deadline_worker.h"
#include "strategies/framework/framework.h"
#include "strategies/ladder/ladder.h"

namespace spillway {
namespace {

constexpr auto kMostTime = std::chrono::seconds(5);
constexpr const char* kHeldByNccl =
    "PyTorch locks its segments while it calls NCCL: TORCH_DIST_USE_NCCL2=0 chooses a backend that does not";

class FrameworkCache final : public Strategy {
 public:
  explicit FrameworkCache(Allocator& allocator) : table_(allocator.table()) {}
  StrategyInfo info() const noexcept override {
    return {"framework_cache", Guarantee::kBitExact, kNeedsFrameworkLock, kServesDriverCallers};
  }
  Offer offer(const PendingRequest& request) noexcept override {
    const OomEvent& event = request.event;
    if (event.capture != CaptureState::kNone || !framework_is_prepared()) return {};
    if (event.framework_waits_for_nccl) {
      Offer none;
      std::snprintf(none.why_not, sizeof none.why_not, "%s", kHeldByNccl);
      return none;
    }
    return {event.short_bytes, costs::kFrameworkCacheUs, /*counted=*/false, Takes::kIdle};
  }
  Relief relieve(PendingRequest& request) noexcept override;

 private:
  const driver::Table& table_;
};

Relief FrameworkCache::relieve(PendingRequest& request) noexcept {
  const OomEvent& event = request.event;
  CUcontext context = nullptr;
  if (table_.cuCtxGetCurrent(&context) != CUDA_SUCCESS || context == nullptr) return {};
  const size_t before = free_bytes(table_);
  // Without a context of its own the first call of a new thread would make one on device 0.
  const bool done = DeadlineWorker::of<FrameworkCache>().run(
      [&table = table_, context] {
        stay_out_of_captures(table);
        if (table.cuCtxSetCurrent(context) == CUDA_SUCCESS) empty_framework_cache();
      },
      std::min(event.deadline, std::chrono::steady_clock::now() + kMostTime));
  const size_t after = free_bytes(table_);
  return {after > before ? after - before : 0, false,
          done ? "the framework gave its idle memory back" : "the framework was busy"};
}

}  // namespace

std::unique_ptr<Strategy> make_framework_cache(Allocator& allocator) {
  return std::make_unique<FrameworkCache>(allocator);
}

}  // namespace spillway
