// Point 5: how fast pinned host memory is made, by several threads, in several sizes, and in other ways.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "tools/gpu_probe/memory.h"
#include "tools/gpu_probe/output.h"
#include "tools/gpu_probe/parts.h"

namespace spillway::probe {
namespace {

// Of the memory that is free now, so that a virtual machine whose memory grows on use is not pushed over its
// end.
uint64_t most_bytes() {
  const auto unused =
      static_cast<uint64_t>(sysconf(_SC_AVPHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return std::min<uint64_t>(unused / 8, 2048 * kMiB);
}

double gbs(uint64_t bytes, double microseconds) {
  return static_cast<double>(bytes) / microseconds / 1e3;
}

struct Made {
  std::vector<CUmemGenericAllocationHandle> handles;
  CUresult result = CUDA_SUCCESS;
};

void make(uint64_t chunk, uint64_t chunks, Made& out) {
  cuda().cuCtxSetCurrent(context());
  for (uint64_t i = 0; i < chunks && out.result == CUDA_SUCCESS; ++i) {
    CUmemGenericAllocationHandle made = 0;
    out.result = create(made, chunk, on_host());
    if (out.result == CUDA_SUCCESS) out.handles.push_back(made);
  }
}

void by_threads(int threads, uint64_t chunk, uint64_t total) {
  const uint64_t each = std::max<uint64_t>(total / chunk / static_cast<uint64_t>(threads), 1);
  std::vector<Made> made(static_cast<size_t>(threads));
  const double start = now_us();
  {
    std::vector<std::jthread> running;
    running.reserve(made.size());
    for (Made& one : made) running.emplace_back([&one, chunk, each] { make(chunk, each, one); });
  }
  const double took = now_us() - start;
  uint64_t bytes = 0;
  CUresult result = CUDA_SUCCESS;
  const double release = now_us();
  for (const Made& one : made) {
    if (one.result != CUDA_SUCCESS) result = one.result;
    bytes += one.handles.size() * chunk;
    for (const auto handle : one.handles) cuda().cuMemRelease(handle);
  }
  const std::initializer_list<Field> how = {
      {"threads", threads}, {"chunk", chunk}, {"bytes", bytes}, {"result", result}};
  say("cuMemCreate on the host", gbs(bytes, took), "GB/s", how);
  say("cuMemRelease on the host", gbs(bytes, now_us() - release), "GB/s", how);
}

void by_alloc(uint64_t bytes) {
  void* made = nullptr;
  const double start = now_us();
  const CUresult result = cuda().cuMemHostAlloc(&made, bytes, CU_MEMHOSTALLOC_PORTABLE);
  const double took = now_us() - start;
  if (result != CUDA_SUCCESS) return say("cuMemHostAlloc", result, "", {{"bytes", bytes}});
  say("cuMemHostAlloc", gbs(bytes, took), "GB/s", {{"bytes", bytes}});
  const double release = now_us();
  cuda().cuMemFreeHost(made);
  say("cuMemFreeHost", gbs(bytes, now_us() - release), "GB/s", {{"bytes", bytes}});
}

// Of the system's memory, touched before, in huge pages where the system gives them.
void by_registering(uint64_t bytes, bool huge) {
  void* block = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (block == MAP_FAILED) return;
  madvise(block, bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  const double touching = now_us();
  for (uint64_t i = 0; i < bytes; i += 4096) static_cast<volatile char*>(block)[i] = 1;
  say("the system's memory touched", gbs(bytes, now_us() - touching), "GB/s",
      {{"bytes", bytes}, {"huge", huge}});
  const double start = now_us();
  const CUresult result = cuda().cuMemHostRegister(block, bytes, CU_MEMHOSTREGISTER_PORTABLE);
  const double took = now_us() - start;
  if (result == CUDA_SUCCESS) {
    say("cuMemHostRegister", gbs(bytes, took), "GB/s", {{"bytes", bytes}, {"huge", huge}});
    cuda().cuMemHostUnregister(block);
  } else {
    say("cuMemHostRegister", result, "", {{"bytes", bytes}, {"huge", huge}});
  }
  munmap(block, bytes);
}

}  // namespace

void ask_host_making() {
  device();
  const uint64_t total = most_bytes();
  say("made at once", total, "bytes");
  if (host_pages_or_say()) {
    for (const int threads : {1, 1, 2, 4, 8}) by_threads(threads, 32 * kMiB, total);
    for (const uint64_t chunk : {2 * kMiB, 8 * kMiB, 128 * kMiB}) by_threads(1, chunk, total / 2);
  }
  by_alloc(2 * kMiB);
  by_alloc(32 * kMiB);
  by_alloc(total / 4 / kMiB * kMiB);
  by_registering(256 * kMiB, false);
  by_registering(256 * kMiB, true);
}

}  // namespace spillway::probe
