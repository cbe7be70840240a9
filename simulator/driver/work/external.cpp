#include "simulator/driver/work/external.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "simulator/driver/entry/call.h"
#include "simulator/driver/work/launch.h"
#include "simulator/driver/work/touch.h"

namespace spillway::simulator {
namespace {

// How long a query waits for other processes to get as far as the virtual clock says. Longer than a slow
// machine delays one of them; short enough for a program in which they wait for this one.
constexpr int64_t kPatienceMs = 5000;
constexpr int64_t kForever = -1;

// Gives the lock of the thread's call up.
class Unlocked {
 public:
  Unlocked() : call_(Call::current()) {
    if (call_) call_->unlock();
  }
  ~Unlocked() {
    if (call_) call_->lock();
  }
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  Call* call_;
};

CUresult result_of(SpillwayExternalState state) {
  switch (state) {
    case SPILLWAY_EXTERNAL_ENDED:
      return CUDA_SUCCESS;
    case SPILLWAY_EXTERNAL_PENDING:
      return CUDA_ERROR_NOT_READY;
    default:
      return CUDA_ERROR_LAUNCH_FAILED;
  }
}

// `timeout` gives the milliseconds for each.
template <typename Timeout>
CUresult wait_for(const Externals& works, Timeout timeout) {
  const bool any = std::any_of(works.begin(), works.end(), [](const auto& work) { return !work->ended(); });
  if (!any) return CUDA_SUCCESS;
  const Unlocked unlocked;
  for (const auto& work : works)
    if (const CUresult result = result_of(work->wait(timeout(*work))); result != CUDA_SUCCESS) return result;
  return CUDA_SUCCESS;
}

void drop_ended(Externals& works) {
  std::erase_if(works, [](const auto& work) { return work->ended(); });
}

void append(Externals& to, const Externals& from) {
  std::copy_if(from.begin(), from.end(), std::back_inserter(to),
               [](const auto& work) { return !work->ended(); });
}

// What has ended meanwhile is dropped, however long nobody waits.
void look(const Externals& works) {
  wait_for(works, [](const External&) { return 0; });
}

}  // namespace

External::External(const SpillwayExternalWork& work) : work_(work) {
  for (uint32_t i = 0; i < work.range_count; ++i)
    if (work.ranges[i].writes && work.ranges[i].bytes <= KnownBytes::kLargest)
      small_writes_.push_back(work.ranges[i]);
}

External::~External() {
  if (work_.release) machine().releases.push_back({work_.release, work_.argument});
}

bool External::may_tell(uint64_t address, uint64_t bytes) const {
  return std::any_of(small_writes_.begin(), small_writes_.end(), [&](const SpillwayRange& range) {
    return range.address < address + bytes && address < range.address + range.bytes;
  });
}

SpillwayExternalState External::wait(int64_t timeout_ms) {
  if (ended()) return SPILLWAY_EXTERNAL_ENDED;
  const SpillwayExternalState state = work_.wait(work_.argument, timeout_ms);
  if (state == SPILLWAY_EXTERNAL_ENDED) ended_.store(true, std::memory_order_release);
  return state;
}

void join(Externals& to, const Externals& from) {
  drop_ended(to);
  if (to.empty()) return append(to, from);
  for (const auto& work : from)
    if (!work->ended() && std::find(to.begin(), to.end(), work) == to.end()) to.push_back(work);
}

Externals pending(const Stream& stream) {
  const Device& device = *stream.context->device;
  Externals found;
  join(found, stream.outside);
  if (&stream == &device.legacy) join(found, device.blocking_outside);
  return found;
}

Externals pending_anywhere() {
  Externals found;
  for (const auto& device : machine().devices) append(found, device->outside);  // each is one device's
  return found;
}

CUresult settle(const Externals& works) {
  return wait_for(works, [](const External&) { return kForever; });
}

CUresult find_settled_stream(CUstream handle, Stream** out) {
  if (const CUresult result = find_stream(handle, out); result != CUDA_SUCCESS) return result;
  const Externals works = pending(**out);
  if (works.empty()) return CUDA_SUCCESS;
  if (const CUresult result = settle(works); result != CUDA_SUCCESS) return result;
  return find_stream(handle, out);
}

CUresult settle_to_read(CUstream handle, uint64_t source, uint64_t bytes, Stream** out) {
  if (machine().config.compute || bytes > KnownBytes::kLargest) return CUDA_SUCCESS;
  Externals works = pending(**out);
  std::erase_if(works, [&](const auto& work) { return !work->may_tell(source, bytes); });
  if (works.empty()) return CUDA_SUCCESS;
  if (const CUresult result = settle(works); result != CUDA_SUCCESS) return result;
  return find_stream(handle, out);
}

void await_bytes(uint64_t address, uint64_t bytes) {
  if (machine().config.compute || bytes > KnownBytes::kLargest) return;
  Externals works;
  {
    const Locked lock(machine().mutex);
    works = pending_anywhere();
    std::erase_if(works, [&](const auto& work) { return !work->may_tell(address, bytes); });
  }
  for (const auto& work : works) work->wait(work->take_patience() ? kPatienceMs : 0);
  const Locked lock(machine().mutex);
  works.clear();  // it may be the last owner
}

void settle_to_unmap() {
  if (machine().config.compute) wait_for(pending_anywhere(), [](const External&) { return kPatienceMs; });
}

CUresult query(uint64_t time, const Externals& works) {
  if (!thread_acts()) {
    const CUresult result = wait_for(works, [](const External&) { return 0; });
    if (result == CUDA_SUCCESS) machine().clock.witness(time);
    return result;
  }
  if (time > machine().clock.now()) return CUDA_ERROR_NOT_READY;
  return wait_for(works, [](External& work) { return work.take_patience() ? kPatienceMs : 0; });
}

CUresult query_by_watchdog(uint64_t stream, uint64_t time, const Externals& works) {
  Watchdog& watchdog = machine().watchdog;
  if (!watchdog.may_see(time)) return CUDA_ERROR_NOT_READY;
  const CUresult result = query(time, works);
  if (result == CUDA_SUCCESS) watchdog.found(stream, time);
  return result;
}

CUresult submit_external(CUstream handle, const SpillwayExternalWork& work, Caller caller) {
  Call call(Function::cuLaunchKernel, caller);
  if (call.refused() != CUDA_SUCCESS) return call.refused();
  Stream* stream = nullptr;
  look(pending_anywhere());
  if (work.range_count > 0 && !work.ranges) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = find_work_stream(handle, &stream, Settled::kToTouch); result != CUDA_SUCCESS)
    return result;
  if (stream->capture) return refuse_capture(*stream, work.name);
  machine().watchdog.await();
  if (const CUresult result = find_stream(handle, &stream); result != CUDA_SUCCESS) return result;
  Device& device = *stream->context->device;
  KernelWork kernel = declared_work(work.name, work.ranges, work.range_count, work.duration_ns);
  kernel.confined = true;
  if (const CUresult result = run(kernel, *stream, call.site()); result != CUDA_SUCCESS) return result;
  machine().watchdog.expect(stream->id, stream->free_at);
  const Externals added{std::make_shared<External>(work)};
  join(stream->outside, added);
  join(device.outside, added);
  if (stream != &device.legacy && stream->blocking()) join(device.blocking_outside, added);
  call.unlock();
  added.front()->begin();
  call.lock();  // the last owner may be `added`
  return CUDA_SUCCESS;
}

}  // namespace spillway::simulator
