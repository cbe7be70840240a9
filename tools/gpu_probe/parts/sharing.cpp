// Points 6 and 20: descriptors, how many and at what cost, and legacy handles on memory of each kind.
#include <sys/resource.h>
#include <unistd.h>

#include <vector>

#include "tools/gpu_probe/kernels.h"
#include "tools/gpu_probe/memory.h"
#include "tools/gpu_probe/output.h"
#include "tools/gpu_probe/parts.h"

namespace spillway::probe {
namespace {

constexpr auto kDescriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

void ask_descriptors(const char* where, Kind kind, int most) {
  kind.descriptor = true;
  rlimit files = {};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  std::vector<CUmemGenericAllocationHandle> pages;
  std::vector<int> descriptors;
  std::vector<double> creating, exporting, importing;
  CUresult result = CUDA_SUCCESS;
  for (int i = 0; i < most && result == CUDA_SUCCESS; ++i) {
    CUmemGenericAllocationHandle page = 0;
    double start = now_us();
    result = create(page, 2 * kMiB, kind);
    if (result != CUDA_SUCCESS) break;
    creating.push_back(now_us() - start);
    pages.push_back(page);
    int descriptor = -1;
    start = now_us();
    result = cuda().cuMemExportToShareableHandle(&descriptor, page, kDescriptor, 0);
    if (result != CUDA_SUCCESS) break;
    exporting.push_back(now_us() - start);
    descriptors.push_back(descriptor);
  }
  say("descriptors", static_cast<int>(descriptors.size()), "",
      {{"pages", where}, {"asked", most}, {"limit", uint64_t{files.rlim_cur}}, {"result", result}});
  std::vector<CUmemGenericAllocationHandle> imported;
  for (const int descriptor : descriptors) {
    CUmemGenericAllocationHandle page = 0;
    const double start = now_us();
    auto* passed = reinterpret_cast<void*>(static_cast<intptr_t>(descriptor));
    if (cuda().cuMemImportFromShareableHandle(&page, passed, kDescriptor) != CUDA_SUCCESS) break;
    importing.push_back(now_us() - start);
    imported.push_back(page);
  }
  say_times("create for sharing", creating, {{"pages", where}});
  say_times("export", exporting, {{"pages", where}});
  say_times("import", importing, {{"pages", where}});
  for (const int descriptor : descriptors) close(descriptor);
  for (const auto page : imported) cuda().cuMemRelease(page);
  for (const auto page : pages) cuda().cuMemRelease(page);
}

void ask_legacy_handles() {
  CUipcMemHandle handle = {};
  const Mapped mapped(2 * kMiB, 1, on_device());
  say("legacy handle of mapped memory", cuda().cuIpcGetMemHandle(&handle, mapped.base()));
  CUdeviceptr block = 0, pooled = 0;
  cuda().cuMemAlloc(&block, 2 * kMiB);
  say("legacy handle of cuMemAlloc's memory", cuda().cuIpcGetMemHandle(&handle, block));
  cuda().cuMemFree(block);
  const Stream stream;
  if (const CUresult result = cuda().cuMemAllocAsync(&pooled, 2 * kMiB, stream.handle);
      result != CUDA_SUCCESS)
    return say("a pool's memory", result);
  say("legacy handle of a pool's memory", cuda().cuIpcGetMemHandle(&handle, pooled));
  cuda().cuMemFreeAsync(pooled, stream.handle);
  stream.wait();
}

}  // namespace

void ask_sharing() {
  device();
  ask_descriptors("card", on_device(), 512);
  if (host_pages_or_say()) ask_descriptors("host", on_host(), 64);
  ask_legacy_handles();
}

}  // namespace spillway::probe
