// Events: a point of a stream on the virtual clock.
#include <algorithm>

#include "simulator/driver/entry/call.h"
#include "simulator/driver/graph/capture.h"
#include "simulator/driver/memory/memory.h"

namespace spillway::simulator {
namespace {

bool is_default(CUstream stream) {
  return stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

CUresult record(CUevent handle, CUstream on, bool external, Site site) {
  Event* event = find_event(handle);
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  Stream* stream = nullptr;
  if (const CUresult result = find_work_stream(on, &stream); result != CUDA_SUCCESS) return result;
  if (event->context != (is_default(on) ? current_context() : stream->context))
    return CUDA_ERROR_INVALID_HANDLE;
  if (stream->capture) return record_in_capture(*event, *stream, external, site);
  event->recorded = true;
  event->capture = 0;
  event->time = place(*stream, nullptr, 0).end;
  event->stream = stream->id;
  event->outside = pending(*stream);
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace spillway::simulator

using namespace spillway::simulator;

CUresult cuEventCreate(CUevent* phEvent, unsigned int Flags) {
  SPILLWAY_SIM_ENTER(cuEventCreate);
  if (!phEvent || (Flags & ~7u)) return CUDA_ERROR_INVALID_VALUE;
  if ((Flags & CU_EVENT_INTERPROCESS) && !(Flags & CU_EVENT_DISABLE_TIMING)) return CUDA_ERROR_INVALID_VALUE;
  if (!current_context()) return CUDA_ERROR_INVALID_CONTEXT;
  auto event = std::make_unique<Event>();
  event->id = sim.next_id++;
  event->context = current_context();
  event->flags = Flags;
  event->site = call.site();
  *phEvent = reinterpret_cast<CUevent>(event.get());
  sim.event_handles.insert(event.get());
  sim.events.emplace(event->id, std::move(event));
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent hEvent) {
  SPILLWAY_SIM_ENTER(cuEventDestroy);
  Event* event = find_event(hEvent);
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  sim.event_handles.erase(event);
  auto taken = sim.events.extract(event->id);
  if (sim.config.driver.crashes_on_destroyed)
    sim.destroyed.note(event, "event", call.site(), std::move(taken.mapped()));
  return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent hEvent, CUstream hStream) {
  SPILLWAY_SIM_ENTER(cuEventRecord);
  return record(hEvent, hStream, false, call.site());
}

CUresult cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int flags) {
  SPILLWAY_SIM_ENTER(cuEventRecordWithFlags);
  if (flags & ~CU_EVENT_RECORD_EXTERNAL) return CUDA_ERROR_INVALID_VALUE;
  return record(hEvent, hStream, flags & CU_EVENT_RECORD_EXTERNAL, call.site());
}

CUresult cuEventQuery(CUevent hEvent) {
  SPILLWAY_SIM_ENTER(cuEventQuery);
  const Event* event = find_event(hEvent);
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult result = check_synchronization(*event); result != CUDA_SUCCESS) return result;
  if (is_watchdog() && event->stream != 0)
    return query_by_watchdog(event->stream, event->time, Externals(event->outside));
  return query(event->time, Externals(event->outside));
}

CUresult cuEventSynchronize(CUevent hEvent) {
  SPILLWAY_SIM_ENTER(cuEventSynchronize);
  const Event* event = find_event(hEvent);
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult result = check_synchronization(*event); result != CUDA_SUCCESS) return result;
  const uint64_t time = event->time;
  if (const CUresult result = settle(Externals(event->outside)); result != CUDA_SUCCESS) return result;
  sim.clock.wait_until(time);
  release_from_pools();
  return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime_v2(float* pMilliseconds, CUevent hStart, CUevent hEnd) {
  SPILLWAY_SIM_ENTER(cuEventElapsedTime_v2);
  const Event* start = find_event(hStart);
  const Event* end = find_event(hEnd);
  if (!pMilliseconds) return CUDA_ERROR_INVALID_VALUE;
  if (!start || !end || !start->recorded || !end->recorded) return CUDA_ERROR_INVALID_HANDLE;
  if ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING) return CUDA_ERROR_INVALID_HANDLE;
  if (captured(*start) || captured(*end)) return CUDA_ERROR_CAPTURED_EVENT;
  if (std::max(start->time, end->time) > sim.clock.known()) return CUDA_ERROR_NOT_READY;
  *pMilliseconds =
      static_cast<float>(static_cast<double>(end->time) - static_cast<double>(start->time)) / 1e6f;
  return CUDA_SUCCESS;
}

SPILLWAY_SIM_FORWARD(cuEventRecord_ptsz, (CUevent hEvent, CUstream hStream), cuEventRecord,
                     (hEvent, per_thread(hStream)))
SPILLWAY_SIM_FORWARD(cuEventRecordWithFlags_ptsz, (CUevent hEvent, CUstream hStream, unsigned int flags),
                     cuEventRecordWithFlags, (hEvent, per_thread(hStream), flags))
