#include "simulator/driver/launch.h"

#include "simulator/driver/call.h"
#include "simulator/driver/touch.h"

namespace spillway::simulator {
namespace {

// Kernels that come as binaries do nothing but take their time: what they touch is not known.
CUresult launch_binary(CUfunction function, CUstream on) {
  Machine& sim = machine();
  Stream* stream = nullptr;
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult result = find_stream(on, &stream); result != CUDA_SUCCESS) return result;
  place(*stream, nullptr, sim.config.kernel_ns);
  ++sim.counters.launches;
  return CUDA_SUCCESS;
}

// Runs on the calling thread, as soon as it is in its place: one of the orders that the stream allows.
CUresult run_on_host(Call& call, CUstream on, CUhostFn function, void* data) {
  Stream* stream = nullptr;
  if (!function) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = find_settled_stream(on, &stream); result != CUDA_SUCCESS) return result;
  place(*stream, nullptr, 0);
  call.unlock();
  function(data);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult occupy(Stream& stream, const char* name, const SpillwayRange* ranges, size_t count,
                uint64_t duration_ns, const Call& call) {
  Machine& sim = machine();
  if (count > 0 && !ranges) return CUDA_ERROR_INVALID_VALUE;
  Use use{0, stream.id, sim.referee.intern(name), call.site()};
  for (size_t i = 0; i < count; ++i) {
    const Touched range{ranges[i].address, ranges[i].bytes, ranges[i].writes != 0};
    if (const CUresult result = check(*stream.context->device, range, false, use.name, call.site());
        result != CUDA_SUCCESS)
      return result;
  }
  use.end = place(stream, nullptr, duration_ns).end;
  for (size_t i = 0; i < count; ++i) stamp({ranges[i].address, ranges[i].bytes, ranges[i].writes != 0}, use);
  ++sim.counters.launches;
  return CUDA_SUCCESS;
}

CUresult submit(CUstream handle, const char* name, const SpillwayRange* ranges, size_t count,
                uint64_t duration_ns, void (*work)(void*), void* argument, Caller caller) {
  Call call(Function::cuLaunchKernel, caller);
  if (call.refused() != CUDA_SUCCESS) return call.refused();
  Stream* stream = nullptr;
  const CUresult found = work ? find_stream_to_touch(handle, &stream) : find_stream(handle, &stream);
  if (found != CUDA_SUCCESS) return found;
  if (const CUresult result = occupy(*stream, name, ranges, count, duration_ns, call); result != CUDA_SUCCESS)
    return result;
  call.unlock();  // the work may call the driver
  if (work) work(argument);
  return CUDA_SUCCESS;
}

}  // namespace spillway::simulator

using namespace spillway::simulator;

CUresult cuLaunchKernel(CUfunction f, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int,
                        unsigned int, unsigned int, CUstream hStream, void**, void**) {
  SPILLWAY_SIM_ENTER(cuLaunchKernel);
  return launch_binary(f, hStream);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction f, void**, void**) {
  SPILLWAY_SIM_ENTER(cuLaunchKernelEx);
  return config ? launch_binary(f, config->hStream) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned int, unsigned int, unsigned int, unsigned int,
                                   unsigned int, unsigned int, unsigned int, CUstream hStream, void**) {
  SPILLWAY_SIM_ENTER(cuLaunchCooperativeKernel);
  return launch_binary(f, hStream);
}

CUresult cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void* userData) {
  SPILLWAY_SIM_ENTER(cuLaunchHostFunc);
  return run_on_host(call, hStream, fn, userData);
}

CUresult cuStreamAddCallback(CUstream hStream, CUstreamCallback callback, void* userData,
                             unsigned int flags) {
  SPILLWAY_SIM_ENTER(cuStreamAddCallback);
  Stream* stream = nullptr;
  if (!callback || flags != 0) return CUDA_ERROR_INVALID_VALUE;
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
SPILLWAY_SIM_FORWARD(cuLaunchHostFunc_ptsz, (CUstream stream, CUhostFn fn, void* data), cuLaunchHostFunc,
                     (per_thread(stream), fn, data))
SPILLWAY_SIM_FORWARD(cuStreamAddCallback_ptsz,
                     (CUstream stream, CUstreamCallback callback, void* data, unsigned int flags),
                     cuStreamAddCallback, (per_thread(stream), callback, data, flags))
