#include "strategies/core/driver_callers.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "allocator/accounting/record.h"
#include "strategies/budget/device_room.h"
#include "strategies/budget/host_budget.h"
#include "strategies/core/process.h"
#include "strategies/framework/call_origin.h"
#include "strategies/framework/framework.h"
#include "strategies/framework/segment_size.h"

namespace spillway {
namespace {
using Clock = std::chrono::steady_clock;
constexpr auto kMostTime = std::chrono::seconds(20);
constexpr auto kFrameworkLoads = std::chrono::milliseconds(500);

spillway_status refuse_device(const char* what, int device) {
  if (device >= 0 && device < Allocator::kMaxDevices) return SPILLWAY_OK;
  return refuse(SPILLWAY_NOT_FOUND, std::string(what) + ": there is no device " + std::to_string(device));
}

// What is freed goes back to the driver, and the call is tried again at once.
class DriverCall final : public PendingRequest {
 public:
  DriverCall(const OomEvent& what, int (*again)(void*), void* context)
      : PendingRequest(what), again_(again), context_(context) {}
  bool retry() noexcept override { return again_(context_) != 0; }

 private:
  int (*const again_)(void*);
  void* const context_;
};

// LibTorch's allocator gives its own cache back when a call fails, which may have to wait for the device, and
// asks a second time. Only that is a failure: one retry more than at the call that failed before, and nothing
// got since. Where it does not tell, the same request is taken for the second one.
bool is_second_try(int device, uint64_t bytes, Clock::time_point now) {
  static std::array<FrameworkRetries, Allocator::kMaxDevices> failed{};  // guarded by the allocator's lock
  if (const auto told = framework_retries_inside(device)) {
    const FrameworkRetries before = std::exchange(failed[static_cast<size_t>(device)], *told);
    return told->retries == before.retries + 1 && told->got_bytes == before.got_bytes;
  }
  thread_local uint64_t last_bytes = 0;
  thread_local Clock::time_point last;
  const bool again = bytes != 0 && last_bytes == bytes && now - last < std::chrono::seconds(30);
  last_bytes = again ? 0 : bytes;
  last = now;
  return again;
}

// A first try of this thread's that was left to LibTorch. LibTorch asks no second time where its own limit
// had refused the request before it gave its cache back.
thread_local bool untold = false;

// A limit of LibTorch's allocator that a request would have passed, and by how much.
struct PassedLimit {
  uint64_t limit, excess;  // bytes
};

std::optional<PassedLimit> passed_framework_limit(const Allocator& allocator, DeviceId device,
                                                  uint64_t segment) {
  const auto state = framework_state_inside(static_cast<int>(device));
  if (!state || state->fraction >= 1) return std::nullopt;
  const auto room = device_room(allocator, device);
  if (!room) return std::nullopt;
  const auto limit = static_cast<uint64_t>(std::llround(state->fraction * static_cast<double>(room->limit)));
  const uint64_t left = limit - std::min(limit, state->held());
  if (segment <= left) return std::nullopt;
  return PassedLimit{std::max<uint64_t>(limit, 1), segment - left};
}

uint64_t microseconds(Clock::duration time) {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(time).count());
}

uint64_t clock_of(Clock::time_point time) {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count());
}

}  // namespace

// One device's, held by one thread.
class DriverCallers::Turn {
 public:
  Turn(DriverCallers& owner, size_t device, Clock::time_point deadline) : owner_(owner), device_(device) {
    const Locked lock(owner_.mutex_);
    while (owner_.taken_[device_])
      if (owner_.over_.wait_until(owner_.mutex_, deadline) == std::cv_status::timeout) break;
    held_ = !std::exchange(owner_.taken_[device_], true);
  }
  ~Turn() {
    if (!held_) return;
    const Locked lock(owner_.mutex_);
    owner_.taken_[device_] = false;
    owner_.over_.notify_all();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  bool held() const { return held_; }

 private:
  DriverCallers& owner_;
  const size_t device_;
  bool held_ = false;
};

// It is told as "out of memory" like any other, and looks as if it were the card's.
spillway_status DriverCallers::note_host_failure(const spillway_driver_request& request, bool is_done_again,
                                                 uint64_t* number) {
  if (const spillway_status status = refuse_device("note_host_failure", request.device);
      status != SPILLWAY_OK)
    return status;
  if (Ladder::inside()) return refuse(SPILLWAY_OUT_OF_MEMORY, "out of memory inside a strategy");
  const Clock::time_point start = Clock::now();
  const std::string library = find_call_origin().library;
  const DeviceId device{request.device};
  const uint64_t incident = allocator_.begin_incident();
  const auto note = [&](trace::Kind kind, uint64_t bytes, uint64_t detail) {
    trace::Record record;
    record.kind = kind;
    record.address = kind == trace::Kind::kOom ? bytes : 0;
    record.bytes = bytes;
    record.requested = kind == trace::Kind::kOomContext ? 0 : request.bytes;
    record.value = static_cast<uint32_t>(incident);
    record.detail = detail;
    write_record(allocator_, device, record);
  };
  using trace::Kind;
  trace::Trace* trace = allocator_.trace();
  note(Kind::kOom, request.bytes, clock_of(start));
  note(Kind::kOomContext, 0, trace == nullptr || library.empty() ? 0 : trace->intern(library));
  note(Kind::kOomEquation, 2 * default_host_budget_bytes(1),
       static_cast<uint64_t>(trace::Term::kHostAvailable));
  if (SiteRecorder* sites = Process::get().sites()) sites->failed(device, incident);
  const auto outcome = is_done_again ? trace::Outcome::kUnwind : trace::Outcome::kGiveUp;
  note(Kind::kLadderOutcome, 0, static_cast<uint64_t>(outcome));
  allocator_.end_incident(is_done_again ? Status::kUnwind : Status::kOutOfMemory, request.bytes,
                          microseconds(Clock::now() - start));
  *number = incident;
  return SPILLWAY_OK;
}

spillway_status DriverCallers::note_framework_failure(int device, uint64_t bytes) {
  if (const spillway_status status = refuse_device("note_framework_failure", device); status != SPILLWAY_OK)
    return status;
  if (Ladder::inside() || !prepare_framework_within(kFrameworkLoads)) return SPILLWAY_OK;
  const Clock::time_point start = Clock::now();
  const uint64_t segment = native_segment_bytes(bytes);
  const auto passed = passed_framework_limit(allocator_, DeviceId{device}, segment);
  if (!passed && !untold) return SPILLWAY_OK;
  untold = false;
  OomEvent event;
  event.framework_limit = passed ? passed->limit : 0;
  event.incident = allocator_.begin_incident();
  event.requested_bytes = bytes;
  event.rounded_bytes = segment;
  event.short_bytes = passed ? passed->excess : std::max<uint64_t>(segment, 1);
  event.device = DeviceId{device};
  event.source = Source::kDriverCaller;
  event.inside_framework = true;
  const std::string library = find_call_origin().library;
  event.library = library.c_str();
  DriverCall call(event, [](void*) { return 0; }, nullptr);
  if (SiteRecorder* sites = Process::get().sites()) sites->failed(event.device, event.incident);
  ladder_.note(call);
  allocator_.end_incident(Status::kOutOfMemory, bytes, microseconds(Clock::now() - start));
  return SPILLWAY_OK;
}

spillway_status DriverCallers::rescue(const spillway_driver_request& request, int (*try_again)(void*),
                                      void* context) {
  if (const spillway_status status = refuse_device("rescue", request.device); status != SPILLWAY_OK)
    return status;
  if (Ladder::inside()) return refuse(SPILLWAY_OUT_OF_MEMORY, "out of memory inside a strategy");
  const Clock::time_point start = Clock::now();
  const CallOrigin caller = find_call_origin();
  if (caller.inside_framework) prepare_framework_within(kFrameworkLoads);
  // While a stream is captured it does not.
  if (caller.inside_framework)
    untold = request.captures == 0 && !is_second_try(request.device, request.bytes, start);
  if (caller.inside_framework && untold)
    return refuse(SPILLWAY_OUT_OF_MEMORY, "LibTorch gives its own cache back first");
  if (!caller.inside_framework) prepare_framework();
  const Turn turn(*this, static_cast<size_t>(request.device),
                  caller.inside_framework ? start : start + kMostTime);
  OomEvent event;
  event.incident = allocator_.begin_incident();
  event.requested_bytes = event.rounded_bytes = request.bytes;
  event.short_bytes = std::max<uint64_t>(request.bytes, 1);
  event.device = DeviceId{request.device};
  event.source = Source::kDriverCaller;
  event.library = caller.library.c_str();
  event.inside_framework = caller.inside_framework;
  event.framework_waits_for_nccl = caller.inside_nccl2 || (caller.on_nccls_thread && framework_uses_nccl2());
  event.capture = request.captures != 0 ? CaptureState::kElsewhere : CaptureState::kNone;
  event.over_limit = request.over_limit != 0;
  event.deadline = start + kMostTime;
  DriverCall call(event, try_again, context);
  if (SiteRecorder* sites = Process::get().sites()) sites->failed(event.device, event.incident);
  const bool served = turn.held() && ladder_.handle(call) == LadderOutcome::kGranted;
  allocator_.end_incident(served ? Status::kOk : Status::kOutOfMemory, request.bytes,
                          microseconds(Clock::now() - start));
  if (served) return SPILLWAY_OK;
  return refuse(SPILLWAY_OUT_OF_MEMORY, std::string(request.call == nullptr ? "a call" : request.call) +
                                            " of " + caller.library + " was not served");
}

}  // namespace spillway
