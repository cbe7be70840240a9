// What a block costs that goes to the host and comes back at its address, by the driver's calls alone: the
// bound of what Spillway's spill and unspill can reach here.
#include <vector>

#include "tools/gpu_probe/kernels.h"
#include "tools/gpu_probe/memory.h"
#include "tools/gpu_probe/output.h"
#include "tools/gpu_probe/parts.h"

namespace spillway::probe {
namespace {

// Pages behind a range of addresses for a copy of their own.
struct Pages {
  std::vector<CUmemGenericAllocationHandle> handles;
  CUresult result = CUDA_SUCCESS;
};

Pages make(uint64_t page, uint64_t bytes, const Kind& kind) {
  Pages out;
  for (uint64_t at = 0; at < bytes && out.result == CUDA_SUCCESS; at += page) {
    CUmemGenericAllocationHandle made = 0;
    out.result = create(made, page, kind);
    if (out.result == CUDA_SUCCESS) out.handles.push_back(made);
  }
  return out;
}

CUresult place(const Pages& pages, uint64_t page, CUdeviceptr at) {
  CUdeviceptr next = at;
  for (const auto handle : pages.handles) {
    if (const CUresult result = cuda().cuMemMap(next, page, 0, handle, 0); result != CUDA_SUCCESS)
      return result;
    next += page;
  }
  return allow(at, next - at);
}

void release(const Pages& pages) {
  for (const auto handle : pages.handles) cuda().cuMemRelease(handle);
}

class Exchange {
 public:
  Exchange(uint64_t page, uint64_t bytes) : page_(page), bytes_(bytes), block_(bytes), aside_(bytes) {}

  void run() {
    here_ = make(page_, bytes_, on_device());
    if (here_.result == CUDA_SUCCESS && place(here_, page_, block_.base) == CUDA_SUCCESS) {
      cuda().cuMemsetD32(block_.base, 0x5eed, bytes_ / 4);
      for (const int round : {1, 2})
        if (!move("to the host", round, on_host()) || !move("back to the card", round, on_device())) break;
      uint32_t last = 0;
      cuda().cuMemcpyDtoH(&last, block_.base + bytes_ - 4, 4);
      say("the block has its values", last == 0x5eed, "", {{"bytes", bytes_}, {"page", page_}});
      cuda().cuMemUnmap(block_.base, bytes_);
    }
    release(here_);
  }

 private:
  // False: pages of that kind could not be made or mapped, and the block is where it was.
  bool move(const char* way, int round, const Kind& to) {
    const double start = now_us();
    Pages next = make(page_, bytes_, to);
    const double made = now_us();
    if (next.result == CUDA_SUCCESS) next.result = place(next, page_, aside_.base);
    if (next.result != CUDA_SUCCESS) {
      say(way, next.result, "", {{"bytes", bytes_}, {"page", page_}, {"round", round}});
      release(next);
      return false;
    }
    const double mapped = now_us();
    cuda().cuMemcpyDtoDAsync(aside_.base, block_.base, bytes_, stream_.handle);
    stream_.wait();
    const double copied = now_us();
    cuda().cuMemUnmap(aside_.base, bytes_);
    cuda().cuMemUnmap(block_.base, bytes_);
    const CUresult result = place(next, page_, block_.base);
    release(here_);
    const double end = now_us();
    say(way, static_cast<double>(bytes_) / (end - start) / 1e3, "GB/s",
        {{"bytes", bytes_},
         {"page", page_},
         {"round", round},
         {"make_us", made - start},
         {"map_us", mapped - made},
         {"copy_us", copied - mapped},
         {"exchange_us", end - copied},
         {"result", result}});
    here_ = next;
    return result == CUDA_SUCCESS;
  }

  const uint64_t page_, bytes_;
  Range block_, aside_;
  Pages here_;
  Stream stream_;
};

}  // namespace

void ask_exchange() {
  if (!host_pages_or_say()) return;
  for (const uint64_t bytes : {64 * kMiB, 512 * kMiB})
    for (const uint64_t page : {2 * kMiB, 32 * kMiB}) Exchange(page, bytes).run();
}

}  // namespace spillway::probe
