#include "strategies/host_memory_ahead.h"

#include <sys/prctl.h>

#include <algorithm>
#include <atomic>

#include "base/service_thread.h"
#include "strategies/processes/primary_context_guard.h"
#include "strategies/spill_offer.h"

namespace spillway {
namespace {

struct Maker {
  Allocator& allocator;
  const SpillLimits limits;
  bool (*const may_spill)();
  std::atomic<uint32_t> needs{0};
  std::atomic<bool> started{false};
};
std::atomic<Maker*> maker{nullptr};

// One piece at a time, so that the process's exit waits for no more.
bool make_one(const Maker& of, DeviceId device) {
  const DriverSpan span;
  return span.begun() &&
         make_host_memory_ahead(of.allocator, device, host_bytes_to_make(of.allocator, of.limits));
}

void serve(Maker& of) {
  prctl(PR_SET_NAME, "spillway-host");  // the simulated driver knows it by that
  for (uint32_t seen = 0;;) {
    of.needs.wait(seen);
    seen = of.needs.load();
    for (int i = 0; i < Allocator::kMaxDevices; ++i)
      while (make_one(of, DeviceId{i})) {
      }
  }
}

void need() {
  Maker& of = *maker.load();
  if (!of.may_spill()) return;
  of.needs.fetch_add(1);
  of.needs.notify_one();
  if (of.started.exchange(true)) return;
  end_spans_before_what_is_loaded();
  start_service_thread([&of] { serve(of); });
}

}  // namespace

void make_host_memory_beside(Allocator& allocator, const SpillLimits& limits, bool (*may_spill)()) {
  maker.store(new Maker{allocator, limits, may_spill});  // the thread uses it for ever
  set_host_memory_need(allocator, &need);
}

}  // namespace spillway
