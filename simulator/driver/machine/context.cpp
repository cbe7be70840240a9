// Contexts: one primary context a device and those of cuCtxCreate; the stack of current contexts of each
// thread.
#include <algorithm>

#include "simulator/driver/entry/call.h"
#include "simulator/driver/graph/capture.h"
#include "simulator/driver/memory/memory.h"
#include "simulator/driver/process/report.h"

namespace spillway::simulator {
namespace {

Context* known(CUcontext handle) {
  auto* context = reinterpret_cast<Context*>(handle);
  Machine& sim = machine();
  for (const auto& device : sim.devices)
    if (&device->primary == context) return context->retains > 0 ? context : nullptr;
  if (sim.contexts.contains(context) && !context->destroyed) return context;
  refuse_destroyed(context);
  return nullptr;
}

constexpr const char* kContextLabel = "context";

uint64_t context_bytes() {
  const Config& config = machine().config;
  return config.context_bytes.value_or(overhead_bytes(config, kContextLabel));
}

CUcontext handle_of(Context* context) {
  return reinterpret_cast<CUcontext>(context);
}

// An active context takes its overhead of the device, if there is room.
CUresult activate(Device& device) {
  if (device.active_contexts == 0 && !device.account.charge(kContextLabel, context_bytes()))
    return refused_for_lack_of_room();
  ++device.active_contexts;
  return CUDA_SUCCESS;
}

void deactivate(Device& device) {
  if (--device.active_contexts == 0) device.account.discharge(kContextLabel, context_bytes());
}

CUresult synchronize(const Device& device) {
  const uint64_t end = device.last_end;
  if (const CUresult result = settle(Externals(device.outside)); result != CUDA_SUCCESS) return result;
  machine().clock.wait_for_all_until(end);
  release_from_pools();
  return CUDA_SUCCESS;
}

CUresult create(CUcontext* out, unsigned flags, CUdevice number) {
  Machine& sim = machine();
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  Device* device = sim.device(number);
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  if (const CUresult result = activate(*device); result != CUDA_SUCCESS) return result;
  auto* context = new Context{.device = device, .flags = flags};
  if (!context_stack().push(context)) {
    deactivate(*device);
    delete context;
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  sim.contexts.insert(context);
  *out = handle_of(context);
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace spillway::simulator

using namespace spillway::simulator;

CUresult cuDevicePrimaryCtxRetain(CUcontext* pctx, CUdevice dev) {
  SPILLWAY_SIM_ENTER(cuDevicePrimaryCtxRetain);
  if (!pctx) return CUDA_ERROR_INVALID_VALUE;
  Device* device = sim.device(dev);
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  if (device->primary.retains == 0) {
    if (const CUresult result = activate(*device); result != CUDA_SUCCESS) return result;
  }
  ++device->primary.retains;
  *pctx = handle_of(&device->primary);
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice dev) {
  SPILLWAY_SIM_ENTER(cuDevicePrimaryCtxRelease);
  Device* device = sim.device(dev);
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  if (device->primary.retains == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (--device->primary.retains == 0) deactivate(*device);
  return CUDA_SUCCESS;
}

// What the program left on the device stays: the leak report names it.
CUresult cuDevicePrimaryCtxReset(CUdevice dev) {
  SPILLWAY_SIM_ENTER(cuDevicePrimaryCtxReset);
  Device* device = sim.device(dev);
  return device ? synchronize(*device) : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice dev, unsigned int flags) {
  SPILLWAY_SIM_ENTER(cuDevicePrimaryCtxSetFlags);
  Device* device = sim.device(dev);
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  device->primary.flags = flags;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int* flags, int* active) {
  SPILLWAY_SIM_ENTER(cuDevicePrimaryCtxGetState);
  Device* device = sim.device(dev);
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  if (flags) *flags = device->primary.flags;
  if (active) *active = device->primary.retains > 0;
  return CUDA_SUCCESS;
}

CUresult cuCtxCreate_v2(CUcontext* pctx, unsigned int flags, CUdevice dev) {
  SPILLWAY_SIM_ENTER(cuCtxCreate_v2);
  return create(pctx, flags, dev);
}

CUresult cuCtxCreate_v3(CUcontext* pctx, CUexecAffinityParam*, int, unsigned int flags, CUdevice dev) {
  SPILLWAY_SIM_ENTER(cuCtxCreate_v3);
  return create(pctx, flags, dev);
}

CUresult cuCtxCreate_v4(CUcontext* pctx, CUctxCreateParams*, unsigned int flags, CUdevice dev) {
  SPILLWAY_SIM_ENTER(cuCtxCreate_v4);
  return create(pctx, flags, dev);
}

CUresult cuCtxDestroy(CUcontext ctx) {
  SPILLWAY_SIM_ENTER(cuCtxDestroy);
  Context* context = known(ctx);
  if (!context || !sim.contexts.contains(context)) return CUDA_ERROR_INVALID_CONTEXT;
  synchronize(*context->device);  // what failed there is no reason to keep it
  if (context->destroyed) return CUDA_ERROR_INVALID_CONTEXT;
  deactivate(*context->device);
  context->destroyed = true;
  context_stack().remove(context);
  if (sim.config.driver.crashes_on_destroyed) sim.destroyed.note(context, "context", call.site());
  return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent(CUcontext ctx) {
  SPILLWAY_SIM_ENTER(cuCtxPushCurrent);
  Context* context = known(ctx);
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  return context_stack().push(context) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuCtxPopCurrent(CUcontext* pctx) {
  SPILLWAY_SIM_ENTER(cuCtxPopCurrent);
  auto& stack = context_stack();
  if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (pctx) *pctx = handle_of(stack.back());
  stack.pop();
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext ctx) {
  SPILLWAY_SIM_ENTER(cuCtxSetCurrent);
  auto& stack = context_stack();
  Context* context = ctx ? known(ctx) : nullptr;
  if (ctx && !context) return CUDA_ERROR_INVALID_CONTEXT;
  if (!stack.empty()) stack.pop();
  return !context || stack.push(context) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuCtxGetCurrent(CUcontext* pctx) {
  SPILLWAY_SIM_ENTER(cuCtxGetCurrent);
  if (!pctx) return CUDA_ERROR_INVALID_VALUE;
  *pctx = handle_of(current_context());
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice* device) {
  SPILLWAY_SIM_ENTER(cuCtxGetDevice);
  if (!device) return CUDA_ERROR_INVALID_VALUE;
  if (!current_context()) return CUDA_ERROR_INVALID_CONTEXT;
  *device = current_context()->device->ordinal;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice_v2(CUdevice* device, CUcontext ctx) {
  SPILLWAY_SIM_ENTER(cuCtxGetDevice_v2);
  if (!device) return CUDA_ERROR_INVALID_VALUE;
  Context* context = ctx ? known(ctx) : current_context();
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  *device = context->device->ordinal;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetFlags(unsigned int* flags) {
  SPILLWAY_SIM_ENTER(cuCtxGetFlags);
  if (!flags) return CUDA_ERROR_INVALID_VALUE;
  if (!current_context()) return CUDA_ERROR_INVALID_CONTEXT;
  *flags = current_context()->flags;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext ctx, unsigned long long* ctxId) {
  SPILLWAY_SIM_ENTER(cuCtxGetId);
  if (!ctxId) return CUDA_ERROR_INVALID_VALUE;
  Context* context = ctx ? known(ctx) : current_context();
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  *ctxId = reinterpret_cast<uintptr_t>(context);
  return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void) {
  SPILLWAY_SIM_ENTER(cuCtxSynchronize);
  if (!current_context()) return CUDA_ERROR_INVALID_CONTEXT;
  const Device& device = *current_context()->device;
  if (const CUresult result = check_synchronization(device); result != CUDA_SUCCESS) return result;
  return synchronize(device);
}

CUresult cuCtxSynchronize_v2(CUcontext ctx) {
  SPILLWAY_SIM_ENTER(cuCtxSynchronize_v2);
  Context* context = ctx ? known(ctx) : current_context();
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  if (const CUresult result = check_synchronization(*context->device); result != CUDA_SUCCESS) return result;
  return synchronize(*context->device);
}

CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned int* version) {
  SPILLWAY_SIM_ENTER(cuCtxGetApiVersion);
  if (!version) return CUDA_ERROR_INVALID_VALUE;
  if (!(ctx ? known(ctx) : current_context())) return CUDA_ERROR_INVALID_CONTEXT;
  *version = 3020;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int* leastPriority, int* greatestPriority) {
  SPILLWAY_SIM_ENTER(cuCtxGetStreamPriorityRange);
  if (!current_context()) return CUDA_ERROR_INVALID_CONTEXT;
  if (leastPriority) *leastPriority = kLeastPriority;
  if (greatestPriority) *greatestPriority = kGreatestPriority;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetLimit(size_t* pvalue, CUlimit limit) {
  SPILLWAY_SIM_ENTER(cuCtxGetLimit);
  if (!pvalue) return CUDA_ERROR_INVALID_VALUE;
  Context* context = current_context();
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  if (limit < 0 || limit >= CU_LIMIT_MAX) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  *pvalue = context->limits[limit];
  return CUDA_SUCCESS;
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
  SPILLWAY_SIM_ENTER(cuCtxSetLimit);
  Context* context = current_context();
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  if (limit < 0 || limit >= CU_LIMIT_MAX) return CUDA_ERROR_UNSUPPORTED_LIMIT;
  context->limits[limit] = value;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCacheConfig(CUfunc_cache* pconfig) {
  SPILLWAY_SIM_ENTER(cuCtxGetCacheConfig);
  if (!pconfig) return CUDA_ERROR_INVALID_VALUE;
  *pconfig = CU_FUNC_CACHE_PREFER_NONE;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCacheConfig(CUfunc_cache) {
  SPILLWAY_SIM_ENTER(cuCtxSetCacheConfig);
  return CUDA_SUCCESS;
}
