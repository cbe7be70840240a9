// Streams on the virtual clock. Work was done when it was submitted; a stream knows when it will have been.
#include <algorithm>

#include "simulator/driver/entry/call.h"
#include "simulator/driver/graph/capture.h"
#include "simulator/driver/memory/memory.h"

namespace spillway::simulator {
namespace {

CUresult create(CUstream* out, unsigned flags, int priority, Site site) {
  Machine& sim = machine();
  if (!out || (flags & ~CU_STREAM_NON_BLOCKING)) return CUDA_ERROR_INVALID_VALUE;
  if (!current_context()) return CUDA_ERROR_INVALID_CONTEXT;
  auto stream = std::make_unique<Stream>();
  stream->context = current_context();
  stream->id = sim.next_id++;
  stream->flags = flags;
  stream->priority = std::clamp(priority, kGreatestPriority, kLeastPriority);
  stream->site = site;
  *out = reinterpret_cast<CUstream>(stream.get());
  sim.stream_handles.insert(stream.get());
  sim.streams.emplace(stream->id, std::move(stream));
  return CUDA_SUCCESS;
}

}  // namespace

uint64_t idle_at(const Stream& stream) {
  const Device& device = *stream.context->device;
  return &stream == &device.legacy ? std::max(stream.free_at, device.blocking_end) : stream.free_at;
}

}  // namespace spillway::simulator

using namespace spillway::simulator;

// Every function on a stream begins so.
#define SPILLWAY_SIM_ENTER_STREAM(function) \
  SPILLWAY_SIM_ENTER(function);             \
  Stream* stream = nullptr;                 \
  if (const CUresult result = find_stream(hStream, &stream); result != CUDA_SUCCESS) return result

CUresult cuStreamCreate(CUstream* phStream, unsigned int Flags) {
  SPILLWAY_SIM_ENTER(cuStreamCreate);
  return create(phStream, Flags, kLeastPriority, call.site());
}

CUresult cuStreamCreateWithPriority(CUstream* phStream, unsigned int flags, int priority) {
  SPILLWAY_SIM_ENTER(cuStreamCreateWithPriority);
  return create(phStream, flags, priority, call.site());
}

CUresult cuStreamDestroy(CUstream hStream) {
  SPILLWAY_SIM_ENTER(cuStreamDestroy);
  auto* stream = reinterpret_cast<Stream*>(hStream);
  if (!sim.stream_handles.contains(stream)) {
    refuse_destroyed(stream);
    return CUDA_ERROR_INVALID_HANDLE;
  }
  leave_captures(*stream);
  sim.watchdog.forget(stream->id);
  sim.stream_handles.erase(stream);
  auto taken = sim.streams.extract(stream->id);
  if (sim.config.driver.crashes_on_destroyed)
    sim.destroyed.note(stream, "stream", call.site(), std::move(taken.mapped()));
  return CUDA_SUCCESS;
}

CUresult cuStreamQuery(CUstream hStream) {
  SPILLWAY_SIM_ENTER_STREAM(cuStreamQuery);
  if (const CUresult result = check_synchronization(*stream); result != CUDA_SUCCESS) return result;
  return query(idle_at(*stream), pending(*stream));
}

CUresult cuStreamSynchronize(CUstream hStream) {
  SPILLWAY_SIM_ENTER_STREAM(cuStreamSynchronize);
  if (const CUresult result = check_synchronization(*stream); result != CUDA_SUCCESS) return result;
  if (const CUresult result = find_settled_stream(hStream, &stream); result != CUDA_SUCCESS) return result;
  sim.clock.wait_for_all_until(idle_at(*stream));
  release_from_pools();
  return CUDA_SUCCESS;
}

CUresult cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags) {
  SPILLWAY_SIM_ENTER_STREAM(cuStreamWaitEvent);
  Event* event = find_event(hEvent);
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  if (Flags & ~CU_EVENT_WAIT_EXTERNAL) return CUDA_ERROR_INVALID_VALUE;
  if (stream->capture || captured(*event))
    return wait_in_capture(*event, *stream, Flags & CU_EVENT_WAIT_EXTERNAL, call.site());
  if (const CUresult result = find_work_stream(hStream, &stream); result != CUDA_SUCCESS) return result;
  stream->free_at = std::max(stream->free_at, event->time);
  join(stream->outside, event->outside);
  place(*stream, nullptr, 0);
  return CUDA_SUCCESS;
}

CUresult cuStreamGetPriority(CUstream hStream, int* priority) {
  SPILLWAY_SIM_ENTER_STREAM(cuStreamGetPriority);
  if (!priority) return CUDA_ERROR_INVALID_VALUE;
  *priority = stream->priority;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetFlags(CUstream hStream, unsigned int* flags) {
  SPILLWAY_SIM_ENTER_STREAM(cuStreamGetFlags);
  if (!flags) return CUDA_ERROR_INVALID_VALUE;
  *flags = stream->flags;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetId(CUstream hStream, unsigned long long* streamId) {
  SPILLWAY_SIM_ENTER_STREAM(cuStreamGetId);
  if (!streamId) return CUDA_ERROR_INVALID_VALUE;
  *streamId = stream->id;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetDevice(CUstream hStream, CUdevice* device) {
  SPILLWAY_SIM_ENTER_STREAM(cuStreamGetDevice);
  if (!device) return CUDA_ERROR_INVALID_VALUE;
  *device = stream->context->device->ordinal;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx(CUstream hStream, CUcontext* pctx) {
  SPILLWAY_SIM_ENTER_STREAM(cuStreamGetCtx);
  if (!pctx) return CUDA_ERROR_INVALID_VALUE;
  *pctx = reinterpret_cast<CUcontext>(stream->context);
  return CUDA_SUCCESS;
}

CUresult cuStreamCopyAttributes(CUstream, CUstream) {
  SPILLWAY_SIM_ENTER(cuStreamCopyAttributes);
  return CUDA_SUCCESS;
}

SPILLWAY_SIM_FORWARD(cuStreamQuery_ptsz, (CUstream hStream), cuStreamQuery, (per_thread(hStream)))
SPILLWAY_SIM_FORWARD(cuStreamSynchronize_ptsz, (CUstream hStream), cuStreamSynchronize, (per_thread(hStream)))
SPILLWAY_SIM_FORWARD(cuStreamWaitEvent_ptsz, (CUstream hStream, CUevent hEvent, unsigned int Flags),
                     cuStreamWaitEvent, (per_thread(hStream), hEvent, Flags))
SPILLWAY_SIM_FORWARD(cuStreamGetPriority_ptsz, (CUstream hStream, int* priority), cuStreamGetPriority,
                     (per_thread(hStream), priority))
SPILLWAY_SIM_FORWARD(cuStreamGetFlags_ptsz, (CUstream hStream, unsigned int* flags), cuStreamGetFlags,
                     (per_thread(hStream), flags))
SPILLWAY_SIM_FORWARD(cuStreamGetId_ptsz, (CUstream hStream, unsigned long long* streamId), cuStreamGetId,
                     (per_thread(hStream), streamId))
SPILLWAY_SIM_FORWARD(cuStreamGetDevice_ptsz, (CUstream hStream, CUdevice* device), cuStreamGetDevice,
                     (per_thread(hStream), device))
SPILLWAY_SIM_FORWARD(cuStreamGetCtx_ptsz, (CUstream hStream, CUcontext* pctx), cuStreamGetCtx,
                     (per_thread(hStream), pctx))
