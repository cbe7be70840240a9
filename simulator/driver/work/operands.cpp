// Operands that do not lie on the device that uses them: each byte crosses a link, beside which the kernel's
// own time counts little. And, in null mode, the time of PyTorch's operators, whose launches say nothing.
#include <algorithm>

#include "driver/product_reads.h"
#include "simulator/driver/entry/call.h"
#include "simulator/driver/work/launch.h"
#include "simulator/driver/work/touch.h"

namespace spillway::simulator {
namespace {

// A result is written once.
double reads_of(const Touched& range) {
  const Config& config = machine().config;
  if (range.writes || config.kernels.tile == 0) return 1;
  return product_reads(
      {range.bytes, static_cast<double>(range.own), static_cast<double>(range.other)},
      {static_cast<double>(config.card.multiprocessors), static_cast<double>(config.card.l2_bytes)},
      config.kernels.tile);
}

// Not overlapped with the kernel's own time, nor with other users of the link.
double ns_of(const Device& device, const Touched& range) {
  const Bandwidth& speed = machine().config.bandwidth;
  const double reads = reads_of(range);
  const double over_host = range.writes ? speed.d2h : speed.h2d;
  AddressSpace& space = machine().space;
  const CUdeviceptr end = range.address + range.bytes;
  double ns = 0;
  auto mapping = space.mapping_of(range.address);
  for (; mapping != space.mappings().end() && mapping->first < end; ++mapping) {
    const Device* owner = mapping->second.page->device;
    if (owner == &device) continue;
    const CUdeviceptr from = std::max(range.address, mapping->first);
    const CUdeviceptr to = std::min(end, mapping->first + mapping->second.bytes);
    ns += static_cast<double>(to - from) * reads / (owner == nullptr ? over_host : speed.peer);
  }
  return ns;
}

// Of an operator with all its operands on the device: as long as the longer of its memory's and its
// arithmetic's time.
uint64_t own_ns(uint64_t bytes, double operations) {
  const Config& config = machine().config;
  if (config.kernels.tflops == 0) return 0;
  const double ns =
      std::max(static_cast<double>(bytes) / config.bandwidth.d2d, operations / config.kernels.tflops / 1000);
  return std::max(config.kernel_ns, static_cast<uint64_t>(ns));
}

}  // namespace

uint64_t link_ns(const Device& device, const std::vector<Touched>& ranges) {
  if (!machine().space.any_remote()) return 0;
  double ns = 0;
  for (const Touched& range : ranges)
    if (is_device_address(range.address)) ns += ns_of(device, range);
  return static_cast<uint64_t>(ns);
}

CUresult operate(CUstream handle, const SpillwayRange* ranges, size_t count, uint64_t bytes,
                 double operations) {
  const Locked lock(machine().mutex);
  if (count > 0 && !ranges) return CUDA_ERROR_INVALID_VALUE;
  Stream* stream = nullptr;
  if (const CUresult result = find_work_stream(handle, &stream); result != CUDA_SUCCESS) return result;
  if (stream->capture) return CUDA_SUCCESS;
  std::vector<Touched> all;
  all.reserve(count);
  for (size_t i = 0; i < count; ++i) all.push_back(touched(ranges[i]));
  place(*stream, nullptr, own_ns(bytes, operations) + link_ns(*stream->context->device, all));
  return CUDA_SUCCESS;
}

}  // namespace spillway::simulator
