#include "allocator/request/request_path.h"

#include "allocator/accounting/equation.h"
#include "allocator/tiers/choice/pressure.h"

namespace spillway {

Status RequestPath::allocate(const Request& request, uint64_t size, bool injected, bool persistent,
                             uint64_t* address, FailurePtr* failure) {
  const Device::Scope scope(*heap_.device);
  Miss miss{.request = request, .size = size, .injected = injected, .persistent = persistent};
  Served served = Served::kShort;
  if (!injected) {
    if (makers_.pending.any() && !heap_.device->capturing(request.stream)) makers_.pending.poll();
    served = provider_.serve_or_collect(miss);
  }
  const Status status = end(miss, served, failure);
  release(miss);
  if (status == Status::kOk) *address = miss.address;
  return status;
}

Status RequestPath::end(Miss& miss, Served served, FailurePtr* failure) {
  if (served == Served::kFailed) return driver_failure(miss, failure);
  learn_under_pressure(heap_, served == Served::kShort);
  const Status status = served == Served::kShort ? run_handler(miss, failure) : Status::kOk;
  makers_.spiller.foresee(served == Served::kShort);
  return status == Status::kOk && miss.segment_bytes != 0 ? ask_source(miss, failure) : status;
}

// After the handler, whose lock a thread may wait for that holds what the source needs.
Status RequestPath::ask_source(Miss& miss, FailurePtr* failure) {
  const Served served = provider_.ask_source(miss);
  if (served == Served::kYes) return Status::kOk;
  if (served == Served::kFailed) return driver_failure(miss, failure);
  if (failure == nullptr) return Status::kOutOfMemory;
  *failure = std::make_unique<Failure>();
  Failure& detail = **failure;
  detail.event = make_event(miss);
  detail.memory = memory_of(heap_);
  detail.text = "the memory pool's own allocator has no more memory";
  return Status::kOutOfMemory;
}

Miss RequestPath::pages_for(uint64_t bytes, StreamId stream) const {
  return {.request = {.bytes = bytes, .stream = stream}, .size = bytes, .pages_only = true};
}

Status RequestPath::get_pages(Miss& miss, FailurePtr* failure) {
  return end(miss, provider_.serve_or_collect(miss), failure);
}

}  // namespace spillway
