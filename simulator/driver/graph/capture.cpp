#include "simulator/driver/graph/capture.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "simulator/driver/entry/call.h"

namespace spillway::simulator {
namespace {

thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
std::atomic<size_t> captures_going_on = 0;

bool is_accessible(CUdeviceptr address, uint64_t bytes) {
  AddressSpace& space = machine().space;
  const CUdeviceptr end = address + bytes;
  while (address < end) {
    const auto mapping = space.mapping_of(address);
    if (mapping == space.mappings().end() || !mapping->second.aliased) return false;
    address = mapping->first + mapping->second.bytes;
  }
  return true;
}

// The oldest last: it is how the bytes were before the capture.
void restore(Capture& capture) {
  for (auto kept = capture.preserved.rbegin(); kept != capture.preserved.rend(); ++kept)
    if (is_accessible(kept->address, kept->bytes.size()))
      std::memcpy(machine().space.alias(kept->address), kept->bytes.data(), kept->bytes.size());
  capture.preserved.clear();
}

CUresult fail(Capture& capture, CUresult code) {
  capture.invalidated = true;
  return code;
}

// Calls that may wait for a device whose stream captures, by themselves or because the real driver does so at
// times. Mappings of virtual memory are not among them.
bool may_synchronize(Function function) {
  switch (function) {
    case Function::cuMemAlloc:
    case Function::cuMemAllocPitch:
    case Function::cuMemAllocManaged:
    case Function::cuMemFree:
    case Function::cuMemAllocHost:
    case Function::cuMemHostAlloc:
    case Function::cuMemFreeHost:
    case Function::cuMemHostRegister:
    case Function::cuMemHostUnregister:
    case Function::cuMemcpy:
    case Function::cuMemcpyHtoD:
    case Function::cuMemcpyDtoH:
    case Function::cuMemcpyDtoD:
    case Function::cuMemcpyPeer:
    case Function::cuMemcpy2D:
    case Function::cuMemcpy2DUnaligned:
    case Function::cuMemcpy3D:
    case Function::cuMemcpy3DPeer:
    case Function::cuIpcOpenMemHandle:
    case Function::cuIpcCloseMemHandle:
    case Function::cuEventQuery:
    case Function::cuEventSynchronize:
      return true;
    default:
      return false;
  }
}

// As cuThreadExchangeStreamCaptureMode says.
bool forbids(const Capture& capture) {
  if (capture.invalidated || thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return false;
  if (capture.thread == thread_token()) return capture.mode != CU_STREAM_CAPTURE_MODE_RELAXED;
  return thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL && capture.mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

void add_tips(Stream& stream, const std::vector<Node*>& tips) {
  for (Node* tip : tips)
    if (std::find(stream.tips.begin(), stream.tips.end(), tip) == stream.tips.end())
      stream.tips.push_back(tip);
}

CUresult join(Stream& stream, Capture& capture, const std::vector<Node*>& tips) {
  if (capture.invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (stream.capture && stream.capture != &capture) {
    fail(*stream.capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
    return fail(capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
  }
  if (&stream == &stream.context->device->legacy) return fail(capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  stream.capture = &capture;
  capture.streams.insert(&stream);
  add_tips(stream, tips);
  return CUDA_SUCCESS;
}

// True if all that the capture's other streams did is before something that the origin has to wait for.
bool joined(const Capture& capture) {
  std::unordered_set<const Node*> reached;
  std::vector<const Node*> open(capture.origin->tips.begin(), capture.origin->tips.end());
  while (!open.empty()) {
    const Node* node = open.back();
    open.pop_back();
    if (reached.insert(node).second)
      open.insert(open.end(), node->dependencies.begin(), node->dependencies.end());
  }
  return std::all_of(capture.streams.begin(), capture.streams.end(), [&](const Stream* stream) {
    return std::all_of(stream->tips.begin(), stream->tips.end(),
                       [&](const Node* tip) { return reached.contains(tip); });
  });
}

void finish(Capture& capture) {
  for (Stream* stream : capture.streams) {
    stream->capture = nullptr;
    stream->tips.clear();
  }
  capture.graph->capturing = false;
  restore(capture);
  captures_going_on.fetch_sub(1, std::memory_order_relaxed);
  machine().graphs.captures.erase(capture.id);
}

CUresult begin(CUstream handle, CUstreamCaptureMode mode, std::shared_ptr<Graph> graph,
               const std::vector<Node*>& tips, Site site) {
  Machine& sim = machine();
  Stream* stream = nullptr;
  if (mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED)
    return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = find_stream(handle, &stream); result != CUDA_SUCCESS) return result;
  if (stream == &stream->context->device->legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (stream->capture || graph->capturing) return CUDA_ERROR_ILLEGAL_STATE;
  auto capture = std::make_unique<Capture>();
  capture->id = sim.graphs.next_capture++;
  capture->mode = mode;
  capture->thread = thread_token();
  capture->origin = stream;
  capture->streams = {stream};
  capture->graph = std::move(graph);
  capture->graph->capturing = true;
  if (!capture->graph->site) capture->graph->site = site;
  stream->capture = capture.get();
  stream->tips = tips;
  sim.graphs.captures.emplace(capture->id, std::move(capture));
  captures_going_on.fetch_add(1, std::memory_order_relaxed);
  return CUDA_SUCCESS;
}

CUresult end(Stream& stream, CUgraph* out) {
  *out = nullptr;
  Capture* capture = stream.capture;
  if (!capture) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->origin != &stream) return fail(*capture, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != thread_token())
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  const CUresult result = capture->invalidated ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                          : joined(*capture)   ? CUDA_SUCCESS
                                               : CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  const std::shared_ptr<Graph> graph = capture->graph;
  finish(*capture);
  if (result != CUDA_SUCCESS) return result;
  *out = handle_of(graph.get());
  machine().graphs.owned.try_emplace(graph.get(), graph);
  return CUDA_SUCCESS;
}

// The status of a stream; the default stream cannot be asked while one that it waits for captures.
CUresult find_status(CUstream handle, Stream** stream, CUstreamCaptureStatus* status) {
  if (!status) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = find_stream(handle, stream); result != CUDA_SUCCESS) return result;
  const Device& device = *(*stream)->context->device;
  for (const auto& [id, capture] : machine().graphs.captures)
    for (const Stream* member : capture->streams)
      if (*stream == &device.legacy && member->blocking() && member->context->device == &device)
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  const Capture* capture = (*stream)->capture;
  *status = !capture               ? CU_STREAM_CAPTURE_STATUS_NONE
            : capture->invalidated ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                   : CU_STREAM_CAPTURE_STATUS_ACTIVE;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult capture_work(Stream& stream, Work work, Site site, Node** out) {
  Capture& capture = *stream.capture;
  if (capture.invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  note_action();
  Node* node = capture.graph->add(std::move(work), stream.tips, site);
  stream.tips = {node};
  if (out) *out = node;
  return CUDA_SUCCESS;
}

size_t capture_count() {
  return captures_going_on.load(std::memory_order_relaxed);
}

void preserve(Capture& capture, CUdeviceptr address, uint64_t bytes) {
  const auto same = [&](const Preserved& kept) {
    return kept.address == address && kept.bytes.size() >= bytes;
  };
  if (bytes == 0 || !is_accessible(address, bytes) ||
      std::any_of(capture.preserved.begin(), capture.preserved.end(), same))
    return;
  const auto* now = static_cast<const char*>(machine().space.alias(address));
  capture.preserved.push_back({address, std::vector<char>(now, now + bytes)});
}

CUresult check_capture(Function function) {
  Graphs& graphs = machine().graphs;
  if (graphs.captures.empty() || !may_synchronize(function)) return CUDA_SUCCESS;
  CUresult result = CUDA_SUCCESS;
  for (const auto& [id, capture] : graphs.captures)
    if (forbids(*capture)) result = fail(*capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  return result;
}

CUresult check_legacy_stream(const Device& device) {
  CUresult result = CUDA_SUCCESS;
  for (const auto& [id, capture] : machine().graphs.captures)
    for (const Stream* member : capture->streams)
      if (member->blocking() && member->context->device == &device)
        result = fail(*capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  return result;
}

CUresult check_synchronization(Stream& stream) {
  if (stream.capture) return fail(*stream.capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  const Device& device = *stream.context->device;
  return &stream == &device.legacy ? check_legacy_stream(device) : CUDA_SUCCESS;
}

CUresult check_synchronization(const Device& device) {
  CUresult result = CUDA_SUCCESS;
  for (const auto& [id, capture] : machine().graphs.captures)
    for (const Stream* member : capture->streams)
      if (member->context->device == &device) result = fail(*capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  return result;
}

CUresult check_synchronization(const Event& event) {
  if (event.capture == 0) return CUDA_SUCCESS;
  const auto& captures = machine().graphs.captures;
  if (const auto found = captures.find(event.capture); found != captures.end())
    return fail(*found->second, CUDA_ERROR_CAPTURED_EVENT);
  return CUDA_ERROR_CAPTURED_EVENT;
}

bool captured(const Event& event) {
  return event.capture != 0;
}

CUresult record_in_capture(Event& event, Stream& stream, bool external, Site site) {
  if (external) return capture_work(stream, RecordWork{event.id}, site);
  if (stream.capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  event.capture = stream.capture->id;
  event.tips = stream.tips;
  return CUDA_SUCCESS;
}

CUresult wait_in_capture(Event& event, Stream& stream, bool external, Site site) {
  if (external) return capture_work(stream, WaitWork{event.id}, site);
  const auto& captures = machine().graphs.captures;
  if (const auto found = captures.find(event.capture); found != captures.end())
    return join(stream, *found->second, event.tips);
  if (!stream.capture) return CUDA_ERROR_CAPTURED_EVENT;
  if (stream.capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  const bool nothing_to_wait_for = !event.recorded && event.capture == 0;
  return nothing_to_wait_for ? CUDA_SUCCESS : fail(*stream.capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
}

void leave_captures(Stream& stream) {
  Capture* capture = stream.capture;
  if (!capture) return;
  capture->invalidated = true;
  capture->streams.erase(&stream);
  if (capture->origin == &stream) finish(*capture);
}

}  // namespace spillway::simulator

using namespace spillway::simulator;

CUresult cuStreamBeginCapture(CUstream hStream, CUstreamCaptureMode mode) {
  SPILLWAY_SIM_ENTER(cuStreamBeginCapture);
  return begin(hStream, mode, std::make_shared<Graph>(), {}, call.site());
}

CUresult cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph, const CUgraphNode* dependencies,
                                     const CUgraphEdgeData*, size_t numDependencies,
                                     CUstreamCaptureMode mode) {
  SPILLWAY_SIM_ENTER(cuStreamBeginCaptureToGraph);
  const auto owned = sim.graphs.owned.find(reinterpret_cast<Graph*>(hGraph));
  std::vector<Node*> tips;
  if (owned == sim.graphs.owned.end() || !find_nodes(dependencies, numDependencies, owned->first, tips))
    return CUDA_ERROR_INVALID_VALUE;
  return begin(hStream, mode, owned->second, tips, call.site());
}

CUresult cuStreamEndCapture(CUstream hStream, CUgraph* phGraph) {
  SPILLWAY_SIM_ENTER(cuStreamEndCapture);
  Stream* stream = nullptr;
  if (!phGraph) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = find_stream(hStream, &stream); result != CUDA_SUCCESS) return result;
  return end(*stream, phGraph);
}

CUresult cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus* captureStatus) {
  SPILLWAY_SIM_ENTER(cuStreamIsCapturing);
  Stream* stream = nullptr;
  return find_status(hStream, &stream, captureStatus);
}

CUresult cuStreamGetCaptureInfo_v3(CUstream hStream, CUstreamCaptureStatus* captureStatus_out,
                                   cuuint64_t* id_out, CUgraph* graph_out,
                                   const CUgraphNode** dependencies_out, const CUgraphEdgeData** edgeData_out,
                                   size_t* numDependencies_out) {
  SPILLWAY_SIM_ENTER(cuStreamGetCaptureInfo_v3);
  Stream* stream = nullptr;
  if (const CUresult result = find_status(hStream, &stream, captureStatus_out); result != CUDA_SUCCESS)
    return result;
  const bool active = *captureStatus_out == CU_STREAM_CAPTURE_STATUS_ACTIVE;
  if (id_out) *id_out = active ? stream->capture->id : 0;
  if (graph_out) *graph_out = active ? handle_of(stream->capture->graph.get()) : nullptr;
  if (dependencies_out)
    *dependencies_out = active ? reinterpret_cast<const CUgraphNode*>(stream->tips.data()) : nullptr;
  if (edgeData_out) *edgeData_out = nullptr;
  if (numDependencies_out) *numDependencies_out = active ? stream->tips.size() : 0;
  return CUDA_SUCCESS;
}

CUresult cuStreamUpdateCaptureDependencies(CUstream hStream, CUgraphNode* dependencies,
                                           const CUgraphEdgeData*, size_t numDependencies,
                                           unsigned int flags) {
  SPILLWAY_SIM_ENTER(cuStreamUpdateCaptureDependencies);
  Stream* stream = nullptr;
  if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = find_stream(hStream, &stream); result != CUDA_SUCCESS) return result;
  if (!stream->capture) return CUDA_ERROR_ILLEGAL_STATE;
  if (stream->capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  std::vector<Node*> tips;
  if (!find_nodes(dependencies, numDependencies, stream->capture->graph.get(), tips))
    return CUDA_ERROR_INVALID_VALUE;
  if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES) stream->tips.clear();
  add_tips(*stream, tips);
  return CUDA_SUCCESS;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  SPILLWAY_SIM_ENTER(cuThreadExchangeStreamCaptureMode);
  if (!mode || *mode < CU_STREAM_CAPTURE_MODE_GLOBAL || *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
    return CUDA_ERROR_INVALID_VALUE;
  std::swap(*mode, thread_mode);
  return CUDA_SUCCESS;
}

SPILLWAY_SIM_FORWARD(cuStreamBeginCapture_v2_ptsz, (CUstream stream, CUstreamCaptureMode mode),
                     cuStreamBeginCapture, (per_thread(stream), mode))
SPILLWAY_SIM_FORWARD(cuStreamBeginCaptureToGraph_ptsz,
                     (CUstream stream, CUgraph graph, const CUgraphNode* dependencies,
                      const CUgraphEdgeData* edges, size_t count, CUstreamCaptureMode mode),
                     cuStreamBeginCaptureToGraph,
                     (per_thread(stream), graph, dependencies, edges, count, mode))
SPILLWAY_SIM_FORWARD(cuStreamEndCapture_ptsz, (CUstream stream, CUgraph* graph), cuStreamEndCapture,
                     (per_thread(stream), graph))
SPILLWAY_SIM_FORWARD(cuStreamIsCapturing_ptsz, (CUstream stream, CUstreamCaptureStatus* status),
                     cuStreamIsCapturing, (per_thread(stream), status))
SPILLWAY_SIM_FORWARD(cuStreamUpdateCaptureDependencies_v2_ptsz,
                     (CUstream stream, CUgraphNode* dependencies, const CUgraphEdgeData* edges, size_t count,
                      unsigned int flags),
                     cuStreamUpdateCaptureDependencies,
                     (per_thread(stream), dependencies, edges, count, flags))
