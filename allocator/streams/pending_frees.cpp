#include "allocator/streams/pending_frees.h"

#include <algorithm>

namespace spillway {
namespace {

// The handle of the threads' own default streams means another one on every thread; an event of the default
// stream passes behind what all of them have queued.
RecordedStream of_all_threads(RecordedStream on) {
  if (reinterpret_cast<CUstream>(on.stream) == CU_STREAM_PER_THREAD) on.stream = StreamId{};
  return on;
}

}  // namespace

// What was queued on a stream that is gone is over when the device is, for which a capture does not allow to
// wait. Of another device it is not known which streams are captured: any capture of the process counts.
bool PendingFrees::captures(const RecordedStream& on) {
  if (on.stream != kStreamGone) return contexts_.capturing(on);
  return on.context == nullptr ? drain_.anything_captures() : heap_.shared.streams.captures_something();
}

bool PendingFrees::any_captures(const std::vector<RecordedStream>& streams) {
  return std::ranges::any_of(streams, [&](const RecordedStream& on) { return captures(on); });
}

void PendingFrees::stream_ends(StreamId stream) {
  const Locked guard(mutex_);
  for (Deferred& entry : deferred_) end_stream(entry.streams, stream);
}

void PendingFrees::add(Block* block, std::vector<RecordedStream> streams) {
  const Device::Scope scope(*heap_.device);
  std::ranges::transform(streams, streams.begin(), of_all_threads);
  bool done = false;
  {
    const Locked guard(mutex_);
    if (any_captures(streams))  // an event recorded now would become part of the graph
      deferred_.push_back({block, std::move(streams)});
    else
      done = record_uses(block, streams);
    if (!done) heap_.set_slow(kSlowPending);
  }
  if (done) releaser_.release(block);
}

bool PendingFrees::record_uses(Block* block, const std::vector<RecordedStream>& streams) {
  return events_.add(block, streams, [this] { return drain_.device(); });
}

void PendingFrees::retry_deferred() {
  std::vector<Deferred> waiting;
  waiting.swap(deferred_);
  for (Deferred& entry : waiting) {
    if (any_captures(entry.streams))
      deferred_.push_back(std::move(entry));
    else if (record_uses(entry.block, entry.streams))
      releaser_.release(entry.block);
  }
}

void PendingFrees::poll() {
  const Device::Scope scope(*heap_.device);
  if (!mutex_.try_lock()) return;  // somebody else polls
  const Locked guard(mutex_, kAdopt);
  retry_deferred();
  releaser_.retry();
  events_.poll([this](Block* block) { releaser_.release(block); });
  if (events_.empty() && deferred_.empty() && !releaser_.must_retry()) heap_.clear_slow(kSlowPending);
}

bool PendingFrees::wait_for_oldest() {
  std::optional<StreamEvents::Mark> oldest;
  {
    const Locked guard(mutex_);
    oldest = events_.oldest();
  }
  if (!oldest || heap_.device->wait(oldest->event) != CUDA_SUCCESS) return false;
  // Not left to a query: one that fails for good would have it waited for again, for ever.
  const Locked guard(mutex_);
  events_.pass(*oldest, [this](Block* block) { releaser_.release(block); });
  return true;
}

bool PendingFrees::any_block(const std::function<bool(Block*)>& predicate) {
  const Locked events(mutex_);
  const Locked guard(heap_.lock);
  return events_.any_block(predicate);
}

void PendingFrees::end() {
  const Locked guard(mutex_);
  events_.end();
}

}  // namespace spillway
