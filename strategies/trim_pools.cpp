// Another library hoards in the driver's stream-ordered pools (cuMemAllocAsync with a release threshold):
// what they keep and nobody uses goes back to the driver. No lock is taken and nothing in use is touched;
// what was freed in the order of a stream counts as used until the host has seen the stream pass it, so the
// device may be waited for, on a thread of ours; not while anything is captured, which the wait would break.
#include <algorithm>

#include "allocator/costs.h"
#include "allocator/streams/program_streams.h"
#include "strategies/core/free_bytes.h"
#include "strategies/core/pools.h"
#include "strategies/framework/deadline_worker.h"
#include "strategies/framework/framework.h"
#include "strategies/ladder/ladder.h"

namespace spillway {
namespace {

constexpr auto kMostTrimTime = std::chrono::seconds(3);

struct Trim {
  const driver::Table& table;
  int device;
};

void trim(void* context, uint64_t pool) {
  static_cast<Trim*>(context)->table.cuMemPoolTrimTo(reinterpret_cast<CUmemoryPool>(pool), 0);
}

// The device's own pool, which nobody can destroy, and those that the program made.
void trim_all(const driver::Table& table, int device) {
  Trim all{table, device};
  CUmemoryPool own = nullptr;
  if (table.cuDeviceGetDefaultMemPool != nullptr &&
      table.cuDeviceGetDefaultMemPool(&own, device) == CUDA_SUCCESS)
    trim(&all, reinterpret_cast<uint64_t>(own));
  visit_pools(device, trim, &all);
}

class TrimPools final : public Strategy {
 public:
  explicit TrimPools(Allocator& allocator) : allocator_(allocator), table_(allocator.table()) {}
  StrategyInfo info() const noexcept override {
    return {"trim_pools", Guarantee::kBitExact, kNeedsNothing, kServesAllocator | kServesDriverCallers};
  }
  // Whether a capture allows it is not documented, and of a request's event only its own stream is known. At
  // the process's own limit it is of no use: what a pool keeps beyond what is in use does not count there.
  Offer offer(const PendingRequest& request) noexcept override {
    const OomEvent& event = request.event;
    const bool possible = event.capture == CaptureState::kNone && !anything_captures(allocator_) &&
                          !event.over_limit && pools_are_used() && table_.cuMemPoolTrimTo != nullptr;
    return possible ? Offer{event.short_bytes, costs::kTrimPoolsUs, /*counted=*/false, Takes::kIdle}
                    : Offer{};
  }
  Relief relieve(PendingRequest& request) noexcept override;

 private:
  Allocator& allocator_;
  const driver::Table& table_;
};

Relief TrimPools::relieve(PendingRequest& request) noexcept {
  const OomEvent& event = request.event;
  const int device = static_cast<int>(event.device);
  CUcontext context = nullptr;
  if (table_.cuCtxGetCurrent(&context) != CUDA_SUCCESS || context == nullptr) return {};
  const size_t before = free_bytes(table_);
  trim_all(table_, device);
  size_t after = free_bytes(table_);
  if (after < before + event.short_bytes) {
    DeadlineWorker::of<TrimPools>().run(
        [&allocator = allocator_, &table = table_, context, device] {
          stay_out_of_captures(table);
          if (anything_captures(allocator) || table.cuCtxSetCurrent(context) != CUDA_SUCCESS) return;
          if (table.cuCtxSynchronize() == CUDA_SUCCESS) trim_all(table, device);
        },
        std::min(event.deadline, std::chrono::steady_clock::now() + kMostTrimTime));
    after = free_bytes(table_);
  }
  return {after > before ? after - before : 0, false, "the driver's pools gave back what they only kept"};
}

}  // namespace

std::unique_ptr<Strategy> make_trim_pools(Allocator& allocator) {
  return std::make_unique<TrimPools>(allocator);
}

}  // namespace spillway
