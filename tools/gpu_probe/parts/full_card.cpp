// Point 11: what is left when a card is full, and what still works there: kernels that are loaded and run for
// the first time, streams, events, pinned memory.
#include <string>
#include <vector>

#include "tools/gpu_probe/kernels.h"
#include "tools/gpu_probe/memory.h"
#include "tools/gpu_probe/output.h"
#include "tools/gpu_probe/parts.h"

namespace spillway::probe {
namespace {

struct Filled {
  std::vector<CUmemGenericAllocationHandle> pages;
  uint64_t bytes = 0;
};

// Large pages first, then smaller ones, until the driver refuses 2 MiB.
void fill(Filled& filled) {
  for (const uint64_t page : {uint64_t{1024} * kMiB, 32 * kMiB, 2 * kMiB}) {
    CUmemGenericAllocationHandle made = 0;
    const double start = now_us();
    int count = 0;
    while (create(made, page, on_device()) == CUDA_SUCCESS) {
      filled.pages.push_back(made);
      filled.bytes += page;
      ++count;
    }
    say("pages until the driver refuses", count, "", {{"page", page}, {"us", now_us() - start}});
  }
}

void ask_calls(const char* when) {
  const std::initializer_list<Field> more = {{"when", when}};
  CUstream stream = nullptr;
  CUevent event = nullptr;
  CUmodule module = nullptr;
  CUfunction late = nullptr;
  void* pinned = nullptr;
  say("cuStreamCreate", cuda().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "", more);
  say("cuEventCreate", cuda().cuEventCreate(&event, CU_EVENT_DEFAULT), "", more);
  say("cuMemHostAlloc", cuda().cuMemHostAlloc(&pinned, 4 * kMiB, 0), "", more);
  const uint64_t before = free_bytes();
  say("cuModuleLoadData", cuda().cuModuleLoadData(&module, kLateKernel), "", more);
  if (module) say("cuModuleGetFunction", cuda().cuModuleGetFunction(&late, module, "late"), "", more);
  if (late && pinned) {
    void* argument[] = {static_cast<void*>(&pinned)};
    CUresult result = cuda().cuLaunchKernel(late, 1, 1, 1, 32, 1, 1, 0, nullptr, argument, nullptr);
    if (result == CUDA_SUCCESS) result = cuda().cuCtxSynchronize();
    say("the first run of a kernel with 2 KiB of local memory a thread", result, "", more);
  }
  const uint64_t after = free_bytes();
  say("which took", before > after ? before - after : 0, "bytes", more);
  if (module) cuda().cuModuleUnload(module);
  if (pinned) cuda().cuMemFreeHost(pinned);
  if (event) cuda().cuEventDestroy(event);
  if (stream) cuda().cuStreamDestroy(stream);
}

}  // namespace

void ask_full_card() {
  device();
  size_t unused = 0, total = 0;
  cuda().cuMemGetInfo(&unused, &total);
  say("taken before anything is made", uint64_t{total} - uint64_t{unused}, "bytes");
  Filled filled;
  fill(filled);
  say("free when 2 MiB are refused", free_bytes(), "bytes", {{"made", filled.bytes}});
  ask_calls("2 MiB are refused");
  constexpr uint64_t kRoom[] = {8 * kMiB, 64 * kMiB, 512 * kMiB, 2048 * kMiB};
  for (const uint64_t room : kRoom) {
    while (!filled.pages.empty() && free_bytes() < room) {
      cuda().cuMemRelease(filled.pages.back());
      filled.pages.pop_back();
    }
    const std::string when = std::to_string(room / kMiB) + " MiB are free";
    ask_calls(when.c_str());
  }
  for (const auto page : filled.pages) cuda().cuMemRelease(page);
}

}  // namespace spillway::probe
