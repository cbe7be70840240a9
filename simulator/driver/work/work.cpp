#include "simulator/driver/work/work.h"

#include <algorithm>

#include "simulator/driver/graph/capture.h"
#include "simulator/driver/machine/state.h"
#include "simulator/driver/memory/memory.h"

namespace spillway::simulator {
namespace {

CUresult run(const HostWork&, Stream& stream, Site) {
  place(stream, nullptr, 0);
  return CUDA_SUCCESS;
}

CUresult run(const RecordWork& work, Stream& stream, Site) {
  const auto event = machine().events.find(work.event);
  if (event == machine().events.end()) return CUDA_ERROR_INVALID_HANDLE;
  event->second->recorded = true;
  event->second->capture = 0;
  event->second->time = place(stream, nullptr, 0).end;
  event->second->outside = pending(stream);
  return CUDA_SUCCESS;
}

CUresult run(const WaitWork& work, Stream& stream, Site) {
  const auto event = machine().events.find(work.event);
  if (event == machine().events.end()) return CUDA_ERROR_INVALID_HANDLE;
  stream.free_at = std::max(stream.free_at, event->second->time);
  join(stream.outside, event->second->outside);
  place(stream, nullptr, 0);
  return CUDA_SUCCESS;
}

CUresult run(const EmptyWork&, Stream&, Site) {
  return CUDA_SUCCESS;
}

CUresult run(const ChildWork&, Stream&, Site) {
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult run(const AllocateWork& work, Stream&, Site site) {
  return allocate_for_graph(work.range, site);
}

CUresult run(const FreeWork& work, Stream& stream, Site site) {
  return free_in_order(work.address, stream, site);
}

}  // namespace

CUresult run(const Work& work, Stream& stream, Site site) {
  return std::visit([&](const auto& kind) { return run(kind, stream, site); }, work);
}

CUresult find_work_stream(CUstream handle, Stream** out, Settled settled) {
  if (const CUresult result = find_stream(handle, out); result != CUDA_SUCCESS) return result;
  if ((*out)->capture) return CUDA_SUCCESS;
  const Device& device = *(*out)->context->device;
  if (*out == &device.legacy)
    if (const CUresult result = check_legacy_stream(device); result != CUDA_SUCCESS) return result;
  const bool waits =
      settled == Settled::kAlways || (settled == Settled::kToTouch && machine().config.compute);
  return waits ? find_settled_stream(handle, out) : CUDA_SUCCESS;
}

CUresult enqueue(Stream& stream, Work work, Site site, bool* captured) {
  if (captured) *captured = stream.capture != nullptr;
  return stream.capture ? capture_work(stream, std::move(work), site) : run(work, stream, site);
}

}  // namespace spillway::simulator
