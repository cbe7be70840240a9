// What a driver allows with parts of handles and parts of ranges.
#include <functional>

#include "tools/gpu_probe/memory.h"
#include "tools/gpu_probe/output.h"
#include "tools/gpu_probe/parts.h"

namespace spillway::probe {
namespace {

constexpr uint64_t kPage = 2 * kMiB, kHandle = 8 * kMiB;

void check(const char* question, CUresult result) {
  say(question, result);
}

// Whether 4 bytes can be written and read there.
bool holds(CUdeviceptr at) {
  uint32_t value = 0x5eed, seen = 0;
  return cuda().cuMemcpyHtoD(at, &value, 4) == CUDA_SUCCESS &&
         cuda().cuMemcpyDtoH(&seen, at, 4) == CUDA_SUCCESS && seen == value;
}

// A handle of 8 MiB of which a part is mapped: what cutting down large handles would need.
void ask_parts_of_a_handle(const char* where, const Kind& kind) {
  const Range range(2 * kHandle);
  CUmemGenericAllocationHandle handle = 0;
  if (create(handle, kHandle, kind) != CUDA_SUCCESS) return;
  CUresult result = cuda().cuMemMap(range.base, kPage, 0, handle, 0);
  say("less than the handle mapped", result, "", {{"pages", where}});
  if (result == CUDA_SUCCESS) {
    result = allow(range.base, kPage);
    say("and used", result == CUDA_SUCCESS && holds(range.base), "", {{"pages", where}, {"result", result}});
    cuda().cuMemUnmap(range.base, kPage);
  }
  result = cuda().cuMemMap(range.base, kPage, kPage, handle, 0);
  say("from an offset of the handle", result, "", {{"pages", where}});
  if (result == CUDA_SUCCESS) cuda().cuMemUnmap(range.base, kPage);
  const CUresult once = cuda().cuMemMap(range.base, kHandle, 0, handle, 0);
  const CUresult twice = cuda().cuMemMap(range.base + kHandle, kHandle, 0, handle, 0);
  say("mapped at two places", twice, "", {{"pages", where}, {"once", once}});
  if (once == CUDA_SUCCESS && twice == CUDA_SUCCESS) {
    allow(range.base, 2 * kHandle);
    uint32_t value = 0xabcd, seen = 0;
    cuda().cuMemcpyHtoD(range.base, &value, 4);
    cuda().cuMemcpyDtoH(&seen, range.base + kHandle, 4);
    say("one place shows what was written at the other", seen == value, "", {{"pages", where}});
  }
  if (twice == CUDA_SUCCESS) cuda().cuMemUnmap(range.base + kHandle, kHandle);
  if (once == CUDA_SUCCESS) cuda().cuMemUnmap(range.base, kHandle);
  cuda().cuMemRelease(handle);
}

void ask_parts_of_a_range() {
  Mapped pages(kPage, 4, on_device());
  Mapped whole(kHandle, 1, on_device());
  const CUmemAccessDesc none = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device()},
                                .flags = CU_MEM_ACCESS_FLAGS_PROT_NONE};
  check("access taken from one page of several", cuda().cuMemSetAccess(pages.base(), kPage, &none, 1));
  check("and given again", allow(pages.base(), kPage));
  check("access taken from a part of one handle", cuda().cuMemSetAccess(whole.base(), kPage, &none, 1));
  check("and given to the part again", allow(whole.base(), kPage));
  const CUresult part = cuda().cuMemUnmap(whole.base(), kPage);
  check("a part of one handle unmapped", part);
  check("pages unmapped two by two", cuda().cuMemUnmap(pages.base(), 2 * kPage));
  check("access over a range with a gap", allow(pages.base(), 4 * kPage));
  CUmemGenericAllocationHandle handle = 0;
  check("the handle of an address",
        cuda().cuMemRetainAllocationHandle(&handle, reinterpret_cast<void*>(pages.base() + 2 * kPage)));
  if (handle != 0) cuda().cuMemRelease(handle);
  cuda().cuMemUnmap(pages.base() + 2 * kPage, 2 * kPage);
}

void ask_order_of_release() {
  const Range range(kPage);
  CUmemGenericAllocationHandle handle = 0;
  if (create(handle, kPage, on_device()) != CUDA_SUCCESS) return;
  cuda().cuMemMap(range.base, kPage, 0, handle, 0);
  check("released while mapped", cuda().cuMemRelease(handle));
  check("access after the release", allow(range.base, kPage));
  say("used after the release", holds(range.base));
  check("unmapped after the release", cuda().cuMemUnmap(range.base, kPage));
  const uint64_t odd = kPage / 2;
  say("a page of 1 MiB", create(handle, odd, on_device()));
}

}  // namespace

void ask_mapping_rules() {
  ask_parts_of_a_handle("card", on_device());
  if (has_host_pages()) ask_parts_of_a_handle("host", on_host());
  ask_order_of_release();
  ask_parts_of_a_range();
}

}  // namespace spillway::probe
