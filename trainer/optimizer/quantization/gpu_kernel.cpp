#include "trainer/optimizer/quantization/gpu_kernel.h"

#include <array>
#include <utility>

extern const char spillway_blockwise_update_source[];
extern const char spillway_code_map_source[];
extern const char spillway_on_both_source[];

namespace spillway::trainer {
namespace {

// What it reads and writes.
std::array<SpillwayRange, 6> ranges_of(const BlockwiseUpdate& of) {
  const auto elements = static_cast<uint64_t>(of.elements),
             scales = sizeof(float) * static_cast<uint64_t>(warp::blocks_of(of));
  return {device_range(of.value, sizeof(float) * elements, true),
          device_range(of.gradient, sizeof(float) * elements, false),
          device_range(of.moments.first_codes, elements, true),
          device_range(of.moments.first_scales, scales, true),
          device_range(of.moments.second_codes, elements, true),
          device_range(of.moments.second_scales, scales, true)};
}

// All but the gradient is read and written.
uint64_t bytes_of(const std::array<SpillwayRange, 6>& ranges) {
  uint64_t bytes = 0;
  for (const SpillwayRange& range : ranges) bytes += range.bytes * (range.writes ? 2 : 1);
  return bytes;
}

void compute(BlockwiseUpdate of, ptrdiff_t offset) {
  of.value = moved(of.value, offset), of.gradient = moved(of.gradient, offset);
  of.moments = {moved(of.moments.first_codes, offset), moved(of.moments.first_scales, offset),
                moved(of.moments.second_codes, offset), moved(of.moments.second_scales, offset)};
  update_blocks_by_lanes(of, 0, warp::blocks_of(of));
}

class BlockwiseOfACard : public BlockwiseKernel {
 public:
  explicit BlockwiseOfACard(std::unique_ptr<DeviceKernel> kernel) : kernel_(std::move(kernel)) {}

  void update(const BlockwiseUpdate& of) const override {
    const std::array<SpillwayRange, 6> ranges = ranges_of(of);
    kernel_->launch({.argument = &of,
                     .blocks = (warp::blocks_of(of) + kWarps - 1) / kWarps,
                     .threads = kWarps * kWarpLanes,
                     .ranges = ranges,
                     .bytes = bytes_of(ranges),
                     .compute = [&of](ptrdiff_t offset) { compute(of, offset); }});
  }

 private:
  const std::unique_ptr<DeviceKernel> kernel_;
};

}  // namespace

KernelCode blockwise_kernel() {
  return {.name = "spillway_update_blocks",
          .source = {{{"trainer/optimizer/quantization/blockwise_update.h", spillway_blockwise_update_source},
                      {"trainer/optimizer/quantization/code_map.h", spillway_code_map_source},
                      {"trainer/runtime/on_both.h", spillway_on_both_source}}}};
}

std::unique_ptr<BlockwiseKernel> BlockwiseKernel::of(std::unique_ptr<DeviceKernel> kernel) {
  return kernel ? std::make_unique<BlockwiseOfACard>(std::move(kernel)) : nullptr;
}

std::unique_ptr<BlockwiseKernel> BlockwiseKernel::make(at::Device device, NoKernel* why_not) {
  return of(DeviceKernel::make(blockwise_kernel(), device, why_not));
}

}  // namespace spillway::trainer
