#include "trainer/optimizer/adam/adam_kernel.h"

#include <utility>
#include <vector>

extern const char spillway_adam_update_source[];
extern const char spillway_chance_source[];
extern const char spillway_on_both_source[];

namespace spillway::trainer {
namespace {

constexpr int64_t kNumbersOfBlock = int64_t{kAdamThreads} * kNumbersOfThread;

void compute(AdamUpdate of, ptrdiff_t offset) {
  of.value = moved(of.value, offset), of.gradient = moved(of.gradient, offset);
  of.bfloat16 = moved(of.bfloat16, offset), of.bfloat16_gradient = moved(of.bfloat16_gradient, offset);
  of.first = moved(of.first, offset), of.second = moved(of.second, offset);
  update_numbers(of);
}

// Moments are read and written, and the values; weights that follow from these are written alone.
uint64_t bytes_of(const AdamUpdate& of) {
  const uint64_t of_number = of.value ? 16 + 4 + 8 + (of.bfloat16 ? 2 : 0) : 16 + 2 + 4;
  return of_number * static_cast<uint64_t>(of.elements);
}

class AdamOfACard : public AdamKernel {
 public:
  explicit AdamOfACard(std::unique_ptr<DeviceKernel> kernel) : kernel_(std::move(kernel)) {}

  void update(const AdamUpdate& of) const override {
    const auto elements = static_cast<uint64_t>(of.elements), bytes = sizeof(float) * elements;
    std::vector<SpillwayRange> ranges{device_range(of.first, bytes, true),
                                      device_range(of.second, bytes, true)};
    const auto add = [&ranges](const void* address, uint64_t count, bool writes) {
      if (address != nullptr) ranges.push_back(device_range(address, count, writes));
    };
    add(of.value, bytes, true), add(of.gradient, bytes, false);
    add(of.bfloat16, bytes / 2, true), add(of.bfloat16_gradient, bytes / 2, false);
    kernel_->launch({.argument = &of,
                     .blocks = (of.elements + kNumbersOfBlock - 1) / kNumbersOfBlock,
                     .threads = kAdamThreads,
                     .ranges = ranges,
                     .bytes = bytes_of(of),
                     .compute = [&of](ptrdiff_t offset) { compute(of, offset); }});
  }

 private:
  const std::unique_ptr<DeviceKernel> kernel_;
};

}  // namespace

KernelCode adam_kernel() {
  return {.name = "spillway_update_adam",
          .source = {{{"trainer/optimizer/adam/adam_update.h", spillway_adam_update_source},
                      {"trainer/optimizer/rounding/chance.h", spillway_chance_source},
                      {"trainer/runtime/on_both.h", spillway_on_both_source}}}};
}

std::unique_ptr<AdamKernel> AdamKernel::of(std::unique_ptr<DeviceKernel> kernel) {
  return kernel ? std::make_unique<AdamOfACard>(std::move(kernel)) : nullptr;
}

std::unique_ptr<AdamKernel> AdamKernel::make(at::Device device, NoKernel* why_not) {
  return of(DeviceKernel::make(adam_kernel(), device, why_not));
}

}  // namespace spillway::trainer
