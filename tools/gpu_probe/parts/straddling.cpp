// Point 14: copies and memsets over a range whose pages lie partly on the card and partly on the host, and
// copy nodes that were captured before their memory moved.
#include <cstring>
#include <vector>

#include "tools/gpu_probe/kernels.h"
#include "tools/gpu_probe/memory.h"
#include "tools/gpu_probe/output.h"
#include "tools/gpu_probe/parts.h"

namespace spillway::probe {
namespace {

constexpr uint64_t kPage = 2 * kMiB, kSpan = kMiB,
                   kStart = kPage - kSpan / 2;  // over the border of two pages

std::vector<uint8_t> pattern(int seed) {
  std::vector<uint8_t> out(kSpan);
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<uint8_t>(i * 7 + i / 251 + static_cast<size_t>(seed));
  return out;
}

// What lies there, read page by page, so that no copy straddles.
std::vector<uint8_t> content(CUdeviceptr at) {
  std::vector<uint8_t> out(kSpan);
  cuda().cuMemcpyDtoH(out.data(), at, kSpan / 2);
  cuda().cuMemcpyDtoH(out.data() + kSpan / 2, at + kSpan / 2, kSpan / 2);
  return out;
}

void judge(const char* question, CUresult result, bool right, const char* order) {
  const CUresult then = cuda().cuCtxSynchronize();
  const char* values = result != CUDA_SUCCESS ? "refused" : right ? "right" : "wrong values";
  say(question, values, "", {{"pages", order}, {"result", result}, {"synchronize", then}});
}

CUDA_MEMCPY2D rectangle(CUdeviceptr to, CUdeviceptr from) {
  CUDA_MEMCPY2D out = {};
  out.srcMemoryType = out.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  out.srcDevice = from;
  out.dstDevice = to;
  out.srcPitch = out.dstPitch = out.WidthInBytes = 4096;
  out.Height = kSpan / 4096;
  return out;
}

void ask_order(const char* order, const Mapped& mixed, const Mapped& plain) {
  const CUdeviceptr at = mixed.base() + kStart;
  std::vector<uint8_t> wanted = pattern(1), seen(kSpan);
  CUresult result = cuda().cuMemcpyHtoD(at, wanted.data(), kSpan);
  judge("copy from the host", result, content(at) == wanted, order);
  result = cuda().cuMemcpyDtoH(seen.data(), at, kSpan);
  judge("copy to the host", result, seen == wanted, order);
  result = cuda().cuMemcpyDtoD(plain.base(), at, kSpan);
  judge("copy to the card", result, content(plain.base()) == wanted, order);
  wanted = pattern(2);
  cuda().cuMemcpyHtoD(plain.base(), wanted.data(), kSpan);
  result = cuda().cuMemcpyDtoD(at, plain.base(), kSpan);
  judge("copy from the card", result, content(at) == wanted, order);
  wanted = pattern(3);
  cuda().cuMemcpyHtoD(plain.base(), wanted.data(), kSpan);
  result = cuda().cuMemcpy(at, plain.base(), kSpan);
  judge("copy by unified addresses", result, content(at) == wanted, order);
  wanted = pattern(4);
  cuda().cuMemcpyHtoD(plain.base(), wanted.data(), kSpan);
  const CUDA_MEMCPY2D copy = rectangle(at, plain.base());
  result = cuda().cuMemcpy2D(&copy);
  judge("copy in two dimensions", result, content(at) == wanted, order);
  const CUDA_MEMCPY2D back = rectangle(plain.base(), at);
  cuda().cuMemsetD8(plain.base(), 0, kSpan);
  result = cuda().cuMemcpy2D(&back);
  judge("copy in two dimensions from there", result, content(plain.base()) == wanted, order);
}

void ask_memsets(const char* order, const Mapped& mixed) {
  const CUdeviceptr at = mixed.base() + kStart;
  CUresult result = cuda().cuMemsetD8(at, 0x5a, kSpan);
  judge("memset of bytes", result, content(at) == std::vector<uint8_t>(kSpan, 0x5a), order);
  result = cuda().cuMemsetD32(at, 0x3c3c3c3c, kSpan / 4);
  judge("memset of words", result, content(at) == std::vector<uint8_t>(kSpan, 0x3c), order);
  result = cuda().cuMemsetD2D8(at, 4096, 0x11, 4096, kSpan / 4096);
  judge("memset in two dimensions", result, content(at) == std::vector<uint8_t>(kSpan, 0x11), order);
}

// A copy that overlaps the border on both sides, on a stream, as PyTorch's copies are.
void ask_stream(const char* order, const Mapped& mixed, const Mapped& plain) {
  const Stream stream;
  const CUdeviceptr at = mixed.base() + kStart;
  const std::vector<uint8_t> wanted = pattern(5);
  cuda().cuMemcpyHtoD(plain.base(), wanted.data(), kSpan);
  CUresult result = cuda().cuMemcpyAsync(at, plain.base(), kSpan, stream.handle);
  stream.wait();
  judge("copy on a stream", result, content(at) == wanted, order);
  void* pinned = nullptr;
  if (cuda().cuMemHostAlloc(&pinned, kSpan, 0) != CUDA_SUCCESS) return;
  std::memset(pinned, 0, kSpan);
  result = cuda().cuMemcpyDtoHAsync(pinned, at, kSpan, stream.handle);
  stream.wait();
  judge("copy to pinned memory", result, std::memcmp(pinned, wanted.data(), kSpan) == 0, order);
  cuda().cuMemFreeHost(pinned);
}

void ask_captured_nodes() {
  Mapped moved(kPage, 2, on_device());
  const Mapped plain(kPage, 2, on_device());
  const Stream stream;
  CUgraph graph = nullptr;
  CUgraphExec launched = nullptr;
  const CUdeviceptr at = moved.base() + kStart;
  cuda().cuStreamBeginCapture(stream.handle, CU_STREAM_CAPTURE_MODE_RELAXED);
  cuda().cuMemcpyDtoDAsync(plain.base(), at, kSpan, stream.handle);
  cuda().cuMemsetD8Async(at, 0x77, kSpan, stream.handle);
  cuda().cuStreamEndCapture(stream.handle, &graph);
  CUresult result = cuda().cuGraphInstantiate(&launched, graph, 0);
  if (result != CUDA_SUCCESS) return say("capture of a copy and a memset", result);
  moved.remap(on_host());
  const std::vector<uint8_t> wanted = pattern(6);
  cuda().cuMemcpyHtoD(at, wanted.data(), kSpan);
  result = cuda().cuGraphLaunch(launched, stream.handle);
  stream.wait();
  judge("captured copy, then moved to the host", result, content(plain.base()) == wanted, "host host");
  judge("captured memset, then moved to the host", result, content(at) == std::vector<uint8_t>(kSpan, 0x77),
        "host host");
  cuda().cuGraphExecDestroy(launched);
  cuda().cuGraphDestroy(graph);
}

}  // namespace

void ask_straddling() {
  if (!host_pages_or_say()) return;
  const Mapped plain(kPage, 1, on_device());
  const Mapped first(kPage, 1, on_device(), 1, on_host()), last(kPage, 1, on_host(), 1, on_device());
  for (const auto& [order, mixed] : {std::pair{"card host", &first}, std::pair{"host card", &last}}) {
    if (mixed->result != CUDA_SUCCESS) {
      say("a range of both", mixed->result, "", {{"pages", order}});
      continue;
    }
    ask_order(order, *mixed, plain);
    ask_memsets(order, *mixed);
    ask_stream(order, *mixed, plain);
  }
  ask_captured_nodes();
}

}  // namespace spillway::probe
