// Stream capture: work on a stream becomes a graph instead of running, and so does the work of streams that
// wait for its events.
//
// Thread-safety: used under the simulator's lock; the capture mode is the calling thread's own. Ownership:
// Graphs owns the captures. Errors: the CUDA_ERROR_STREAM_CAPTURE_* that the driver has for it. Units: none.
#pragma once
#include <cuda.h>

#include "simulator/driver/entry/functions.h"
#include "simulator/driver/graph/graph.h"
#include "simulator/driver/machine/state.h"

namespace spillway::simulator {

// The node joins the stream's capture; CUDA_ERROR_STREAM_CAPTURE_INVALIDATED if that has failed.
CUresult capture_work(Stream& stream, Work work, Site site, Node** out = nullptr);

// A call of `function` by this thread while captures go on: an error, and those captures fail, if it might
// synchronise with them. Constant time when nothing captures.
CUresult check_capture(Function function);
// The stream is to be waited for or asked whether it is idle: not while it captures.
CUresult check_synchronization(Stream& stream);
// The same for everything on a device.
CUresult check_synchronization(const Device& device);
// The default stream is to be used: not while a stream captures that it would wait for.
CUresult check_legacy_stream(const Device& device);
// The event is to be waited for by the host, or asked: not if it stands in a capture.
CUresult check_synchronization(const Event& event);

CUresult record_in_capture(Event& event, Stream& stream, bool external, Site site);
// Waits of a capturing stream, and waits for captured events.
CUresult wait_in_capture(Event& event, Stream& stream, bool external, Site site);
bool captured(const Event& event);

// How many captures go on; without the lock.
size_t capture_count();
// The bytes are as now when the capture has ended, whoever writes them until then.
void preserve(Capture& capture, CUdeviceptr address, uint64_t bytes);

// The stream goes away.
void leave_captures(Stream& stream);

}  // namespace spillway::simulator
