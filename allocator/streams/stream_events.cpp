#include "allocator/streams/stream_events.h"

#include <iterator>

namespace spillway {

void StreamEvents::end() {
  for (const auto& [on, queue] : by_stream_)
    for (const Queued& queued : queue) contexts_.put_back(queued.event, on);
  by_stream_.clear();
  outstanding_.clear();
}

bool StreamEvents::add(Block* block, const std::vector<RecordedStream>& streams,
                       const std::function<CUresult()>& drain) {
  unsigned marks = 0;
  for (const RecordedStream& on : streams) {
    CUevent event = contexts_.record(on);
    if (event != nullptr) {
      by_stream_[on].push_back({event, block, ++sequence_});
      ++marks;
    } else if ((on.context == nullptr ? drain() : contexts_.wait(on)) != CUDA_SUCCESS) {
      ++marks;
    }
  }
  if (marks != 0) outstanding_[block] = marks;
  return marks == 0;
}

void StreamEvents::poll(const Passed& passed) {
  for (auto it = by_stream_.begin(); it != by_stream_.end();) {
    Queue& queue = it->second;
    while (!queue.empty() && device_.query(queue.front().event) == CUDA_SUCCESS)
      pass_first(it->first, queue, passed);
    it = queue.empty() ? by_stream_.erase(it) : std::next(it);
  }
}

std::optional<StreamEvents::Mark> StreamEvents::oldest() const {
  std::optional<Mark> oldest;
  for (const auto& [on, queue] : by_stream_) {
    const Queued& first = queue.front();
    if (!oldest || first.sequence < oldest->sequence) oldest = {on, first.event, first.sequence};
  }
  return oldest;
}

void StreamEvents::pass(const Mark& mark, const Passed& passed) {
  const auto queue = by_stream_.find(mark.on);
  if (queue == by_stream_.end() || queue->second.front().sequence != mark.sequence) return;
  pass_first(mark.on, queue->second, passed);
  if (queue->second.empty()) by_stream_.erase(queue);
}

void StreamEvents::pass_first(const RecordedStream& on, Queue& queue, const Passed& passed) {
  const Queued first = queue.front();
  queue.pop_front();
  contexts_.put_back(first.event, on);
  const auto left = outstanding_.find(first.block);
  if (--left->second != 0) return;
  outstanding_.erase(left);
  passed(first.block);
}

}  // namespace spillway
