#include "simulator/driver/work/launch.h"

#include <cstdio>

#include "simulator/driver/entry/call.h"
#include "simulator/driver/graph/capture.h"
#include "simulator/driver/machine/module.h"
#include "simulator/driver/work/touch.h"

namespace spillway::simulator {
namespace {

CUresult launch_binary(const CUDA_KERNEL_NODE_PARAMS& launch, CUstream on, Site site) {
  Stream* stream = nullptr;
  if (!launch.func) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult result = find_work_stream(on, &stream); result != CUDA_SUCCESS) return result;
  ++submitted_kernels();
  const KernelWork work = binary_work(launch);
  note_if_uncomputed(work.name);
  return enqueue(*stream, work, site);
}

// Runs on the calling thread, as soon as it is in its place: one of the orders that the stream allows.
CUresult run_on_host(Call& call, CUstream on, CUhostFn function, void* data) {
  Stream* stream = nullptr;
  bool captured = false;
  if (!function) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = find_work_stream(on, &stream, Settled::kAlways); result != CUDA_SUCCESS)
    return result;
  const CUresult result = enqueue(*stream, HostWork{function, data}, call.site(), &captured);
  if (result != CUDA_SUCCESS || captured) return result;
  call.unlock();
  function(data);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult refuse_capture(Stream& stream, const char* name) {
  std::fprintf(stderr,
               "spillway simulator: '%s' cannot be captured: it brings work that runs on the host, once\n",
               name ? name : "kernel");
  stream.capture->invalidated = true;
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

KernelWork declared_work(const char* name, const SpillwayRange* ranges, size_t count, uint64_t duration_ns) {
  KernelWork work{
      .name = machine().referee.intern(name), .ranges = {}, .duration_ns = duration_ns, .launch = {}};
  for (size_t i = 0; i < count; ++i) work.ranges.push_back(touched(ranges[i]));
  return work;
}

CUresult submit(CUstream handle, const char* name, const SpillwayRange* ranges, size_t count,
                uint64_t duration_ns, void (*work)(void*), void* argument, Caller caller) {
  Call call(Function::cuLaunchKernel, caller);
  if (call.refused() != CUDA_SUCCESS) return call.refused();
  Stream* stream = nullptr;
  if (count > 0 && !ranges) return CUDA_ERROR_INVALID_VALUE;
  // Also without `work`: CPU kernels are submitted first and then run by the caller.
  if (const CUresult result = find_work_stream(handle, &stream, Settled::kToTouch); result != CUDA_SUCCESS)
    return result;
  if (work && stream->capture) return refuse_capture(*stream, name);
  KernelWork kernel = declared_work(name, ranges, count, duration_ns);
  ++submitted_kernels();
  if (const CUresult result = enqueue(*stream, std::move(kernel), call.site()); result != CUDA_SUCCESS)
    return result;
  call.unlock();  // the work may call the driver
  if (work) work(argument);
  return CUDA_SUCCESS;
}

CUresult capture(CUstream handle, const char* name, const SpillwayRange* ranges, size_t count,
                 uint64_t duration_ns, const Repetition& repetition, Caller caller) {
  Call call(Function::cuLaunchKernel, caller);
  if (call.refused() != CUDA_SUCCESS) return call.refused();
  Stream* stream = nullptr;
  if (const CUresult result = find_work_stream(handle, &stream); result != CUDA_SUCCESS) return result;
  if (!stream->capture) return CUDA_ERROR_ILLEGAL_STATE;
  if (stream->capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  KernelWork kernel = declared_work(name, ranges, count, duration_ns);
  kernel.repeated = std::make_shared<const Repeated>(repetition);
  ++submitted_kernels();
  return enqueue(*stream, std::move(kernel), call.site());
}

// The runtime's kernels take no time: what they compute, and so how long, is not known.
KernelWork binary_work(const CUDA_KERNEL_NODE_PARAMS& launch) {
  const CUfunction function = launch.func ? launch.func : reinterpret_cast<CUfunction>(launch.kern);
  KernelWork work{.name = kernel_name(function),
                  .ranges = {},
                  .duration_ns = belongs_to_no_module(function) ? 0 : machine().config.kernel_ns,
                  .launch = launch};
  work.launch.kernelParams = work.launch.extra = nullptr;
  return work;
}

CUresult run(const KernelWork& work, Stream& stream, Site site) {
  for (const Touched& range : work.ranges)
    if (const CUresult result = check(*stream.context->device, range, false, work.name, site);
        result != CUDA_SUCCESS)
      return result;
  const uint64_t ns = work.duration_ns + link_ns(*stream.context->device, work.ranges);
  const Use use{place(stream, nullptr, ns).end, stream.id, work.name, site};
  for (const Touched& range : work.ranges) stamp(range, use);
  if (!work.confined) forget_written();
  ++machine().counters.launches;
  return CUDA_SUCCESS;
}

}  // namespace spillway::simulator

using namespace spillway::simulator;

CUresult cuLaunchKernel(CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
                        unsigned int by, unsigned int bz, unsigned int shared, CUstream hStream, void**,
                        void**) {
  SPILLWAY_SIM_ENTER(cuLaunchKernel);
  return launch_binary({f, gx, gy, gz, bx, by, bz, shared, nullptr, nullptr, nullptr, nullptr}, hStream,
                       call.site());
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction f, void**, void**) {
  SPILLWAY_SIM_ENTER(cuLaunchKernelEx);
  if (!config) return CUDA_ERROR_INVALID_VALUE;
  return launch_binary(
      {f, config->gridDimX, config->gridDimY, config->gridDimZ, config->blockDimX, config->blockDimY,
       config->blockDimZ, config->sharedMemBytes, nullptr, nullptr, nullptr, nullptr},
      config->hStream, call.site());
}

// All blocks of a kernel that does nothing run together.
CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz,
                                   unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared,
                                   CUstream hStream, void**) {
  SPILLWAY_SIM_ENTER(cuLaunchCooperativeKernel);
  return launch_binary({f, gx, gy, gz, bx, by, bz, shared, nullptr, nullptr, nullptr, nullptr}, hStream,
                       call.site());
}

CUresult cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void* userData) {
  SPILLWAY_SIM_ENTER(cuLaunchHostFunc);
  return run_on_host(call, hStream, fn, userData);
}

// How a GPU's thread waits for the function makes no difference to a program.
CUresult cuLaunchHostFunc_v2(CUstream hStream, CUhostFn fn, void* userData, unsigned int syncMode) {
  SPILLWAY_SIM_ENTER(cuLaunchHostFunc_v2);
  if (syncMode > CU_HOST_TASK_SPINWAIT) return CUDA_ERROR_INVALID_VALUE;
  return run_on_host(call, hStream, fn, userData);
}

CUresult cuStreamAddCallback(CUstream hStream, CUstreamCallback callback, void* userData,
                             unsigned int flags) {
  SPILLWAY_SIM_ENTER(cuStreamAddCallback);
  Stream* stream = nullptr;
  if (!callback || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = find_stream(hStream, &stream); result != CUDA_SUCCESS) return result;
  if (const CUresult result = check_synchronization(*stream); result != CUDA_SUCCESS) return result;
  if (const CUresult result = find_settled_stream(hStream, &stream); result != CUDA_SUCCESS) return result;
  place(*stream, nullptr, 0);
  call.unlock();
  callback(hStream, CUDA_SUCCESS, userData);
  return CUDA_SUCCESS;
}

SPILLWAY_SIM_FORWARD(cuLaunchKernel_ptsz,
                     (CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
                      unsigned int by, unsigned int bz, unsigned int shared, CUstream stream,
                      void** parameters, void** extra),
                     cuLaunchKernel,
                     (f, gx, gy, gz, bx, by, bz, shared, per_thread(stream), parameters, extra))
SPILLWAY_SIM_FORWARD(cuLaunchKernelEx_ptsz,
                     (const CUlaunchConfig* config, CUfunction f, void** parameters, void** extra),
                     cuLaunchKernelEx, (config, f, parameters, extra))
SPILLWAY_SIM_FORWARD(cuLaunchCooperativeKernel_ptsz,
                     (CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
                      unsigned int by, unsigned int bz, unsigned int shared, CUstream stream,
                      void** parameters),
                     cuLaunchCooperativeKernel,
                     (f, gx, gy, gz, bx, by, bz, shared, per_thread(stream), parameters))
SPILLWAY_SIM_FORWARD(cuLaunchHostFunc_ptsz, (CUstream stream, CUhostFn fn, void* data), cuLaunchHostFunc,
                     (per_thread(stream), fn, data))
SPILLWAY_SIM_FORWARD(cuLaunchHostFunc_v2_ptsz, (CUstream stream, CUhostFn fn, void* data, unsigned int mode),
                     cuLaunchHostFunc_v2, (per_thread(stream), fn, data, mode))
SPILLWAY_SIM_FORWARD(cuStreamAddCallback_ptsz,
                     (CUstream stream, CUstreamCallback callback, void* data, unsigned int flags),
                     cuStreamAddCallback, (per_thread(stream), callback, data, flags))
