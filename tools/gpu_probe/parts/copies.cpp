// GB/s of copies between the card and the host, for memory of every kind that a block may lie in, and to
// other cards.
#include <algorithm>
#include <vector>

#include "tools/gpu_probe/kernels.h"
#include "tools/gpu_probe/memory.h"
#include "tools/gpu_probe/output.h"
#include "tools/gpu_probe/parts.h"

namespace spillway::probe {
namespace {

constexpr int kTimes = 5;

double gbs(uint64_t bytes, double microseconds) {
  return static_cast<double>(bytes) / microseconds / 1e3;
}

// The fastest of several, from the call to the end of the copy.
double best_us(CUdeviceptr to, CUdeviceptr from, uint64_t bytes) {
  const Stream stream;
  double best = 1e18;
  for (int i = 0; i < kTimes; ++i) {
    const double start = now_us();
    if (cuda().cuMemcpyAsync(to, from, bytes, stream.handle) != CUDA_SUCCESS) return 0;
    stream.wait();
    best = std::min(best, now_us() - start);
  }
  return best;
}

void ways(const char* kind, CUdeviceptr there, CUdeviceptr card, uint64_t bytes) {
  for (const bool out : {true, false}) {
    const double took = out ? best_us(there, card, bytes) : best_us(card, there, bytes);
    say(out ? "card to host" : "host to card", took > 0 ? gbs(bytes, took) : 0.0, "GB/s",
        {{"host", kind}, {"bytes", bytes}, {"us", took}});
  }
}

// Both at once, on two streams.
void both_ways(const char* kind, CUdeviceptr there, CUdeviceptr card, uint64_t bytes) {
  const Stream out, back;
  const uint64_t half = bytes / 2;
  const double start = now_us();
  cuda().cuMemcpyAsync(there, card, half, out.handle);
  cuda().cuMemcpyAsync(card + half, there + half, half, back.handle);
  out.wait();
  back.wait();
  say("both ways at once", gbs(bytes, now_us() - start), "GB/s", {{"host", kind}, {"bytes", bytes}});
}

// One copy of the whole beside many copies of 2 MiB.
void in_pieces(const char* kind, CUdeviceptr there, CUdeviceptr card, uint64_t bytes) {
  const Stream stream;
  const double start = now_us();
  for (uint64_t at = 0; at < bytes; at += 2 * kMiB)
    cuda().cuMemcpyAsync(there + at, card + at, 2 * kMiB, stream.handle);
  stream.wait();
  say("card to host in pieces of 2 MiB", gbs(bytes, now_us() - start), "GB/s",
      {{"host", kind}, {"bytes", bytes}});
}

void all_sizes(const char* kind, CUdeviceptr there, CUdeviceptr card, uint64_t most) {
  for (uint64_t bytes = 2 * kMiB; bytes <= most; bytes *= 4) ways(kind, there, card, bytes);
  both_ways(kind, there, card, most);
  in_pieces(kind, there, card, most);
}

// To each card whose memory this one can use, over the link that moved blocks would take.
void to_other_cards(CUdeviceptr card, uint64_t bytes) {
  int count = 0;
  cuda().cuDeviceGetCount(&count);
  for (CUdevice other = 0; other < count; ++other) {
    int reached = 0;
    if (other == device()) continue;
    if (cuda().cuDeviceCanAccessPeer(&reached, device(), other) != CUDA_SUCCESS || reached == 0) continue;
    const Mapped there(32 * kMiB, static_cast<int>(bytes / (32 * kMiB)),
                       {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = other});
    if (there.result != CUDA_SUCCESS) {
      say("to another card", there.result, "", {{"to", other}});
      continue;
    }
    const double took = best_us(there.base(), card, bytes);
    say("to another card", took > 0 ? gbs(bytes, took) : 0.0, "GB/s", {{"to", other}, {"bytes", bytes}});
  }
}

}  // namespace

void ask_copies() {
  constexpr uint64_t kMost = 512 * kMiB;
  const Mapped card(2 * kMiB, kMost / (2 * kMiB), on_device());
  if (card.result != CUDA_SUCCESS) return say("512 MiB of the card", card.result);
  void* pinned = nullptr;
  if (cuda().cuMemHostAlloc(&pinned, kMost, 0) == CUDA_SUCCESS) {
    all_sizes("pinned", reinterpret_cast<CUdeviceptr>(pinned), card.base(), kMost);
    cuda().cuMemFreeHost(pinned);
  }
  std::vector<char> pageable(128 * kMiB, 1);
  ways("pageable", reinterpret_cast<CUdeviceptr>(pageable.data()), card.base(), pageable.size());
  {
    const Mapped other(32 * kMiB, 16, on_device());
    if (other.result == CUDA_SUCCESS) {
      const double took = best_us(other.base(), card.base(), kMost);
      say("on the card", took > 0 ? gbs(kMost, took) : 0.0, "GB/s", {{"bytes", kMost}});
    }
  }
  to_other_cards(card.base(), kMost);
  if (!host_pages_or_say()) return;
  for (const uint64_t page : {2 * kMiB, 32 * kMiB}) {
    const Mapped host(page, static_cast<int>(kMost / page), on_host());
    if (host.result != CUDA_SUCCESS)
      say("512 MiB of host pages", host.result, "", {{"page", page}});
    else
      all_sizes(page == 2 * kMiB ? "pages of 2 MiB" : "pages of 32 MiB", host.base(), card.base(), kMost);
  }
}

}  // namespace spillway::probe
