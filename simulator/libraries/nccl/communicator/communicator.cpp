// What a communicator does once it is ready: submitting, waiting, failing, leaving.
#include "simulator/libraries/nccl/communicator/communicator.h"

#include <unistd.h>

#include <algorithm>

#include "simulator/libraries/labelled_page.h"
#include "simulator/libraries/nccl/device.h"
#include "simulator/libraries/nccl/error.h"

namespace spillway::nccl {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr int64_t kLookAgainMs = 100;  // a rank that dies is noticed within about that time

void begin_work(void* argument) {
  const auto& work = *static_cast<std::shared_ptr<Work>*>(argument);
  work->communicator->begin(work);
}

SpillwayExternalState wait_for_work(void* argument, int64_t timeout_ms) {
  const Work& work = **static_cast<std::shared_ptr<Work>*>(argument);
  return work.communicator->wait(work, timeout_ms);
}

void release_work(void* argument) {
  delete static_cast<std::shared_ptr<Work>*>(argument);
}

ncclResult_t result_of(CUresult result, const std::string& what) {
  if (result == CUDA_SUCCESS) return ncclSuccess;
  return fail(ncclUnhandledCudaError,
              what + ": the driver refuses the work with error " + std::to_string(result));
}

}  // namespace

Communicator::~Communicator() {
  leave(false);
}

uint64_t Communicator::duration_of(const std::vector<Call>& calls) const {
  uint64_t longest = 0;
  for (const Call& call : calls) longest = std::max(longest, duration_ns(links_, call.signature, ranks_));
  return longest;
}

ncclResult_t Communicator::submit(std::vector<Call> calls, cudaStream_t stream) {
  if (const ncclResult_t error = async_error(); error != ncclSuccess)
    return error == ncclInProgress ? fail(ncclInvalidArgument, "the communicator is not ready yet") : error;
  if (const ncclResult_t result = charge_for(calls); result != ncclSuccess) return result;
  std::vector<SpillwayRange> ranges;
  for (const Call& call : calls) add_ranges(call, rank_, ranks_, ranges);
  const OnDevice guard(device_);
  auto work = std::make_shared<Work>();
  work->communicator = shared_from_this();
  const char* name = function_name(calls.front().signature.kind);
  const uint64_t duration = duration_of(calls);
  for (Call& call : calls) {
    if (!computes()) break;
    call.source = host_view(call.source);
    call.target = host_view(call.target);
    if (call.device_scalar) call.device_scalar = host_view(call.device_scalar);
  }
  work->left = calls.size();
  work->calls = std::move(calls);
  auto argument = std::make_unique<std::shared_ptr<Work>>(work);
  const SpillwayExternalWork external = {.size = sizeof external,
                                         .range_count = static_cast<uint32_t>(ranges.size()),
                                         .name = name,
                                         .ranges = ranges.data(),
                                         .duration_ns = duration,
                                         .begin = begin_work,
                                         .wait = wait_for_work,
                                         .release = release_work,
                                         .argument = argument.get()};
  const CUresult result = control()->submit_external(stream, &external);
  if (result != CUDA_SUCCESS) return result_of(result, name);
  [[maybe_unused]] const auto* driver_releases = argument.release();
  const Locked lock(mutex_);
  return error_ == ncclSuccess || aborted_ ? ncclSuccess : fail(error_, why_);
}

Communicator::Begun Communicator::begin_one(const std::shared_ptr<Work>& work, const Call& call,
                                            uint32_t* seen) {
  const Locked lock(mutex_);
  *seen = file_->changes();
  progress_locked();
  if (error_ != ncclSuccess || left_ || !traffic_) return Begun::kNever;
  if (!traffic_->has_room(call)) {
    look_for_the_dead_locked();
    return Begun::kNoRoom;
  }
  Trouble trouble;
  if (!traffic_->publish(work, call, &trouble)) fail_locked(trouble.result, trouble.why);
  return Begun::kYes;
}

void Communicator::begin(const std::shared_ptr<Work>& work) {
  for (const Call& call : work->calls) {
    uint32_t seen = 0;
    Begun begun = begin_one(work, call, &seen);
    for (; begun == Begun::kNoRoom; begun = begin_one(work, call, &seen)) file_->wait(seen, kLookAgainMs);
    if (begun == Begun::kNever) return;
  }
  const Locked lock(mutex_);
  progress_locked();  // the last to come learns at once that others called something else
}

SpillwayExternalState Communicator::look_at(const Work& work, uint32_t* seen) {
  const Locked lock(mutex_);
  *seen = file_->changes();
  progress_locked();
  if (const SpillwayExternalState state = state_locked(work); state != SPILLWAY_EXTERNAL_PENDING)
    return state;
  look_for_the_dead_locked();
  return state_locked(work);
}

SpillwayExternalState Communicator::wait(const Work& work, int64_t timeout_ms) {
  const auto deadline = steady_clock::now() + milliseconds(std::max<int64_t>(timeout_ms, 0));
  for (;;) {
    uint32_t seen = 0;
    const SpillwayExternalState state = look_at(work, &seen);
    if (state != SPILLWAY_EXTERNAL_PENDING || timeout_ms == 0) return state;
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - steady_clock::now()).count();
    if (timeout_ms > 0 && left <= 0) return SPILLWAY_EXTERNAL_PENDING;
    file_->wait(seen, timeout_ms < 0 ? kLookAgainMs : std::min<int64_t>(left, kLookAgainMs));
  }
}

SpillwayExternalState Communicator::state_locked(const Work& work) const {
  if (work.left == 0 || aborted_) return SPILLWAY_EXTERNAL_ENDED;
  return error_ == ncclSuccess ? SPILLWAY_EXTERNAL_PENDING : SPILLWAY_EXTERNAL_FAILED;
}

void Communicator::progress_locked() {
  if (!traffic_ || error_ != ncclSuccess) return;
  Trouble trouble;
  if (!traffic_->progress(&trouble)) fail_locked(trouble.result, trouble.why);
}

bool Communicator::time_to_look() {
  const auto now = steady_clock::now();
  if (now - looked_ < milliseconds(kLookAgainMs)) return false;
  looked_ = now;
  return true;
}

void Communicator::look_for_the_dead_locked() {
  if (!traffic_ || error_ != ncclSuccess) return;
  if (!time_to_look()) return;
  std::string from_what;
  const int missing = traffic_->missing_rank(&from_what);
  if (missing < 0) return;
  const RankPart& part = file_->rank(missing);
  const char* how = part.presence.load() == Presence::kLeft ? " left the communicator" : " ended";
  fail_locked(ncclRemoteError, "rank " + std::to_string(missing) + " (process " +
                                   std::to_string(part.process.load().id) + ")" + how + " before " +
                                   from_what);
}

// The program may only see a wait that fails, so it is said here too.
void Communicator::fail_locked(ncclResult_t result, const std::string& why) {
  if (error_ != ncclSuccess) return;
  error_ = result;
  why_ = why;
  say("rank " + std::to_string(rank_) + ": " + why);
  fail(result, why);
  if (traffic_) traffic_->drop_all();  // nothing of it will end
  file_->changed();
}

ncclResult_t Communicator::async_error() {
  const Locked lock(mutex_);
  const ncclResult_t result = async_error_locked();
  return result == ncclSuccess || result == ncclInProgress ? result : fail(result, why_);
}

ncclResult_t Communicator::async_error_locked() {
  if (const ncclResult_t result = advance_locked(); result != ncclSuccess) return result;
  progress_locked();
  look_for_the_dead_locked();
  if (error_ != ncclSuccess) return error_;
  return finalizing_ && traffic_ && !traffic_->idle() ? ncclInProgress : ncclSuccess;
}

ncclResult_t Communicator::finalize() {
  if (const ncclResult_t result = wait_ready(); result != ncclSuccess) return result;
  {
    const Locked lock(mutex_);
    finalizing_ = true;
  }
  if (!settings_.blocking) return ncclSuccess;
  for (;;) {
    const uint32_t seen = file_->changes();
    if (const ncclResult_t state = async_error(); state != ncclInProgress) return state;
    file_->wait(seen, kLookAgainMs);
  }
}

void Communicator::leave(bool abort) {
  const Locked lock(mutex_);
  if (owner_.id != static_cast<uint64_t>(getpid())) return;  // a forked child's copy
  aborted_ = aborted_ || abort;
  if (abort && traffic_) traffic_->drop_all();
  if (left_) return;
  left_ = true;
  for (const Buffer& buffer : buffers_) stand_in::release_labelled_page(buffer.page);
  buffers_.clear();
  if (!file_ || rank_ < 0) return;
  file_->rank(rank_).presence.store(Presence::kLeft);
  file_->changed();
}

}  // namespace spillway::nccl
