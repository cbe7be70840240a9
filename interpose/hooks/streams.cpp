#include "interpose/hooks/streams.h"

#include "interpose/hooks/captures.h"
#include "strategies/streams/streams.h"

spillway_capture_count spillway_follow_streams(void (*ended)(uint64_t stream)) {
  spillway::interpose::stream_ended.store(ended, std::memory_order_release);
  return spillway::interpose::captures_under_way;
}
