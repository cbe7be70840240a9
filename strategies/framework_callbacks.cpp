// The framework lets go of what it only keeps for others: what PyTorch's own allocator does before it gives
// up (c10::FreeCudaMemoryCallbacksRegistry), and free segments of memory pools that were released. First of
// all, because nobody uses any of it.
#include "allocator/costs.h"
#include "strategies/framework/collector.h"
#include "strategies/ladder/ladder.h"

namespace spillway {
namespace {

class FrameworkCallbacks final : public Strategy {
 public:
  explicit FrameworkCallbacks(Allocator& allocator) : allocator_(allocator) {}
  StrategyInfo info() const noexcept override {
    return {"framework_callbacks", Guarantee::kBitExact, kNeedsNothing, kServesAllocator};
  }
  Offer offer(const PendingRequest& request) noexcept override {
    const OomEvent& event = request.event;
    if (!may_collect(static_cast<int>(event.device))) return {};
    return {event.short_bytes, costs::kFrameworkCallbacksUs, /*counted=*/false, Takes::kIdle};
  }
  Relief relieve(PendingRequest& request) noexcept override {
    const DeviceId device = request.event.device;
    const uint64_t before = unused(device);
    collect(static_cast<int>(device));
    const uint64_t after = unused(device);
    return {after > before ? after - before : 0, false, "the framework let go of what it kept for others"};
  }

 private:
  // What the limit leaves to requests, whether it is held or not.
  uint64_t unused(DeviceId device) {
    Memory memory;
    if (allocator_.memory(device, &memory) != Status::kOk) return 0;
    return memory.stranded + memory.cached + memory.pending + memory.pools + memory.free;
  }

  Allocator& allocator_;
};

}  // namespace

std::unique_ptr<Strategy> make_framework_callbacks(Allocator& allocator) {
  return std::make_unique<FrameworkCallbacks>(allocator);
}

}  // namespace spillway
