// What a capture in the global mode forbids: each call in a capture of its own, by the thread that captures
// and by another, and whether the capture lives on.
#include <functional>
#include <thread>

#include "tools/gpu_probe/kernels.h"
#include "tools/gpu_probe/memory.h"
#include "tools/gpu_probe/output.h"
#include "tools/gpu_probe/parts.h"

namespace spillway::probe {
namespace {

using Call = std::function<CUresult()>;

void ask_one(const char* name, const Call& call, bool by_other) {
  const Stream stream;
  CUresult result = cuda().cuStreamBeginCapture(stream.handle, CU_STREAM_CAPTURE_MODE_GLOBAL);
  if (result != CUDA_SUCCESS) return say("the capture", result);
  CUresult answer = CUDA_SUCCESS;
  if (by_other) {
    std::jthread([&] {
      cuda().cuCtxSetCurrent(context());
      answer = call();
    }).join();
  } else {
    answer = call();
  }
  CUgraph graph = nullptr;
  result = cuda().cuStreamEndCapture(stream.handle, &graph);
  if (graph) cuda().cuGraphDestroy(graph);
  say(name, answer, "",
      {{"by", by_other ? "another thread" : "the thread that captures"}, {"capture", result}});
}

void ask_both(const char* name, const Call& call) {
  ask_one(name, call, false);
  ask_one(name, call, true);
}

void ask_growth() {
  const Range range(8 * kMiB);
  CUmemGenericAllocationHandle page = 0;
  ask_both("create", [&] {
    const CUresult result = create(page, 2 * kMiB, on_device());
    return result == CUDA_SUCCESS ? cuda().cuMemRelease(page) : result;
  });
  ask_both("create, map, allow, unmap, release", [&] {
    const Mapped block(2 * kMiB, 2, on_device());
    return block.result;
  });
  ask_both("host pages made and mapped", [&] {
    const Mapped block(2 * kMiB, 2, on_host());
    return block.result;
  });
}

void ask_others() {
  size_t unused = 0, total = 0;
  CUdeviceptr block = 0;
  void* pinned = nullptr;
  CUevent event = nullptr;
  CUmodule module = nullptr;
  const Stream other;
  cuda().cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
  cuda().cuEventRecord(event, other.handle);
  ask_both("cuMemGetInfo", [&] { return cuda().cuMemGetInfo(&unused, &total); });
  ask_both("cuMemAlloc", [&] {
    const CUresult result = cuda().cuMemAlloc(&block, kMiB);
    if (result == CUDA_SUCCESS) cuda().cuMemFree(block);
    return result;
  });
  ask_both("cuMemHostAlloc", [&] {
    const CUresult result = cuda().cuMemHostAlloc(&pinned, kMiB, 0);
    if (result == CUDA_SUCCESS) cuda().cuMemFreeHost(pinned);
    return result;
  });
  ask_both("cuEventQuery of another stream's event", [&] { return cuda().cuEventQuery(event); });
  ask_both("cuStreamQuery of another stream", [&] { return cuda().cuStreamQuery(other.handle); });
  ask_both("cuStreamSynchronize of another stream", [&] { return cuda().cuStreamSynchronize(other.handle); });
  ask_both("cuCtxSynchronize", [&] { return cuda().cuCtxSynchronize(); });
  ask_both("cuModuleLoadData", [&] {
    const CUresult result = cuda().cuModuleLoadData(&module, kLateKernel);
    if (result == CUDA_SUCCESS) cuda().cuModuleUnload(module);
    return result;
  });
  ask_both("a copy between devices' memory on another stream", [&] {
    const Mapped pages(2 * kMiB, 2, on_device());
    const CUresult result =
        cuda().cuMemcpyDtoDAsync(pages.base(), pages.base() + 2 * kMiB, kMiB, other.handle);
    other.wait();
    return result;
  });
  cuda().cuEventDestroy(event);
}

}  // namespace

void ask_capture() {
  device();
  has_host_pages();
  ask_growth();
  ask_others();
}

}  // namespace spillway::probe
