// Point 15: kernels over pages of the host: their values, their atomics, their GB/s beside pages of the card.
#include <algorithm>
#include <cstring>
#include <vector>

#include "tools/gpu_probe/kernels.h"
#include "tools/gpu_probe/memory.h"
#include "tools/gpu_probe/output.h"
#include "tools/gpu_probe/parts.h"

namespace spillway::probe {
namespace {

constexpr const char* kAtomics[] = {"atomic_u32", "atomic_sys", "atomic_f32", "atomic_cas"};

double gbs(uint64_t bytes, double microseconds) {
  return static_cast<double>(bytes) / microseconds / 1e3;
}

template <typename Launch>
double best_us(const Stream& stream, Launch launch) {
  double best = 1e18;
  for (int i = 0; i < 3; ++i) {
    const double start = now_us();
    launch();
    stream.wait();
    best = std::min(best, now_us() - start);
  }
  return best;
}

void ask_speed(const char* where, const Mapped& block) {
  const Stream stream;
  const uint64_t count = block.bytes() / 4;
  CUdeviceptr out = 0;
  cuda().cuMemAlloc(&out, 8);
  cuda().cuMemsetD8(out, 0, 8);
  const double filled = best_us(stream, [&] { kernels().fill(stream.handle, block.base(), count, 3); });
  const double read = best_us(stream, [&] { kernels().sum(stream.handle, block.base(), count, out); });
  const double both = best_us(stream, [&] { kernels().add_one(stream.handle, block.base(), count); });
  uint64_t total = 0;
  cuda().cuMemcpyDtoH(&total, out, 8);
  const std::initializer_list<Field> more = {{"pages", where}, {"bytes", block.bytes()}};
  say("the sum is right", total == 9 * count, "", more);
  say("written", gbs(block.bytes(), filled), "GB/s", more);
  say("read", gbs(block.bytes(), read), "GB/s", more);
  say("read and written", gbs(2 * block.bytes(), both), "GB/s", more);
  cuda().cuMemFree(out);
}

// Each number is met by as many threads as there are numbers to a round.
void ask_atomics(const char* where, const Mapped& block) {
  constexpr uint32_t kCount = 64;
  constexpr unsigned kBlocks = 1024;
  const Stream stream;
  const uint32_t wanted = kBlocks * 256 / kCount;
  for (const char* name : kAtomics) {
    cuda().cuMemsetD32(block.base(), 0, kCount);
    const double start = now_us();
    CUresult result = kernels().atomic(name, stream.handle, block.base(), kCount, kBlocks);
    if (result == CUDA_SUCCESS) result = cuda().cuStreamSynchronize(stream.handle);
    const double took = now_us() - start;
    std::vector<uint32_t> seen(kCount);
    cuda().cuMemcpyDtoH(seen.data(), block.base(), size_t{kCount} * 4);
    uint32_t right = wanted;
    const auto as_float = static_cast<float>(wanted);
    if (std::strcmp(name, "atomic_f32") == 0) std::memcpy(&right, &as_float, 4);
    const bool all = std::all_of(seen.begin(), seen.end(), [&](uint32_t value) { return value == right; });
    say(name,
        result != CUDA_SUCCESS ? "refused"
        : all                  ? "right"
                               : "updates were lost",
        "", {{"pages", where}, {"us", took}, {"result", result}});
  }
}

}  // namespace

void ask_kernels_on_host_pages() {
  if (!kernels_or_say()) return;
  {
    const Mapped card(2 * kMiB, 128, on_device());
    ask_speed("card", card);
    ask_atomics("card", card);
  }
  if (!host_pages_or_say()) return;
  for (const uint64_t page : {2 * kMiB, 32 * kMiB}) {
    const Mapped host(page, static_cast<int>(256 * kMiB / page), on_host());
    if (host.result != CUDA_SUCCESS) continue;
    ask_speed(page == 2 * kMiB ? "host, 2 MiB each" : "host, 32 MiB each", host);
    ask_atomics("host", host);
  }
}

}  // namespace spillway::probe
