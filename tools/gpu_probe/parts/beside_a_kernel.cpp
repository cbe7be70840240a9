// Point 16: which calls wait for a kernel that has nothing to do with them. Each is made once beside a kernel
// of its own; one that waits takes about as long as what was left of the kernel.
#include <functional>
#include <optional>
#include <string>

#include "tools/gpu_probe/kernels.h"
#include "tools/gpu_probe/memory.h"
#include "tools/gpu_probe/output.h"
#include "tools/gpu_probe/parts.h"

namespace spillway::probe {
namespace {

constexpr double kKernelMs = 2000;

// Times a call beside a kernel on another stream, and without one.
void beside(const char* call, const std::function<CUresult()>& make) {
  const Stream stream;
  kernels().spin(stream.handle, kKernelMs);
  const double start = now_us();
  const CUresult result = make();
  const double took = now_us() - start;
  const bool running = cuda().cuStreamQuery(stream.handle) == CUDA_ERROR_NOT_READY;
  kernels().end_spinning(stream.handle);
  say(call, took, "us", {{"waited_for_the_kernel", !running}, {"result", result}});
}

void ask_mapping() {
  const Range range(64 * kMiB);
  CUmemGenericAllocationHandle page = 0, host = 0;
  beside("create", [&] { return create(page, 32 * kMiB, on_device()); });
  beside("map", [&] { return cuda().cuMemMap(range.base, 32 * kMiB, 0, page, 0); });
  beside("allow", [&] { return allow(range.base, 32 * kMiB); });
  beside("memset of it", [&] { return cuda().cuMemsetD8(range.base, 1, 32 * kMiB); });
  beside("unmap", [&] { return cuda().cuMemUnmap(range.base, 32 * kMiB); });
  beside("release", [&] { return cuda().cuMemRelease(page); });
  if (has_host_pages()) {
    beside("create on the host", [&] { return create(host, 32 * kMiB, on_host()); });
    beside("map of the host", [&] { return cuda().cuMemMap(range.base, 32 * kMiB, 0, host, 0); });
    beside("allow of the host", [&] { return allow(range.base, 32 * kMiB); });
    beside("unmap of the host", [&] { return cuda().cuMemUnmap(range.base, 32 * kMiB); });
    beside("release of the host", [&] { return cuda().cuMemRelease(host); });
  }
  CUdeviceptr reserved = 0;
  beside("reserve addresses", [&] { return cuda().cuMemAddressReserve(&reserved, 64 * kMiB, 0, 0, 0); });
  beside("free addresses", [&] { return cuda().cuMemAddressFree(reserved, 64 * kMiB); });
}

void ask_others() {
  size_t unused = 0, total = 0;
  CUdeviceptr block = 0;
  void* pinned = nullptr;
  CUmodule module = nullptr;
  CUfunction late = nullptr;
  CUstream made = nullptr;
  beside("cuMemGetInfo", [&] { return cuda().cuMemGetInfo(&unused, &total); });
  beside("cuMemAlloc", [&] { return cuda().cuMemAlloc(&block, 32 * kMiB); });
  beside("cuMemFree", [&] { return cuda().cuMemFree(block); });
  beside("cuMemHostAlloc", [&] { return cuda().cuMemHostAlloc(&pinned, 32 * kMiB, 0); });
  beside("cuMemFreeHost", [&] { return cuda().cuMemFreeHost(pinned); });
  beside("cuModuleLoadData", [&] { return cuda().cuModuleLoadData(&module, kLateKernel); });
  beside("cuModuleGetFunction", [&] { return cuda().cuModuleGetFunction(&late, module, "late"); });
  beside("cuModuleUnload", [&] { return cuda().cuModuleUnload(module); });
  beside("cuStreamCreate", [&] { return cuda().cuStreamCreate(&made, CU_STREAM_NON_BLOCKING); });
  beside("cuStreamDestroy", [&] { return cuda().cuStreamDestroy(made); });
}

void ask_copies_beside() {
  const Mapped from(2 * kMiB, 16, on_device());
  const Mapped to(2 * kMiB, 16, has_host_pages() ? on_host() : on_device());
  const Stream other;
  uint32_t value = 0;
  beside("a copy on another stream", [&] {
    const CUresult result = cuda().cuMemcpyDtoDAsync(to.base(), from.base(), from.bytes(), other.handle);
    return result == CUDA_SUCCESS ? cuda().cuStreamSynchronize(other.handle) : result;
  });
  beside("a synchronous read of 4 bytes", [&] { return cuda().cuMemcpyDtoH(&value, from.base(), 4); });
}

// A whole block, page by page, beside a kernel of two seconds.
void ask_cycle() {
  const Stream stream;
  kernels().spin(stream.handle, kKernelMs);
  const double start = now_us();
  {
    const Mapped block(2 * kMiB, 64, on_device());
    say("64 pages of 2 MiB made and mapped", now_us() - start, "us", {{"result", block.result}});
  }
  const double took = now_us() - start;
  const bool running = cuda().cuStreamQuery(stream.handle) == CUDA_ERROR_NOT_READY;
  kernels().end_spinning(stream.handle);
  say("and given back", took, "us", {{"waited_for_the_kernel", !running}});
}

}  // namespace

void ask_beside_a_kernel() {
  if (!kernels_or_say()) return;
  ask_mapping();
  ask_others();
  ask_copies_beside();
  ask_cycle();
}

}  // namespace spillway::probe
