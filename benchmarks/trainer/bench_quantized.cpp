// AdamW with moments in 8 bits, on the CPU's cores: bytes a second beside those of the plainest loop over
// memory, in turns. Prints a line a round, and the ratio of the medians as JSON.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "trainer/optimizer/quantization/blockwise_adamw.h"
#include "trainer/plan/parameters/optimizer_state.h"

namespace {

using spillway::trainer::kQuantizationBlock;

struct Arrays {
  explicit Arrays(size_t elements)
      : value(elements, 0.5f),
        gradient(elements),
        first(elements),
        second(elements),
        first_scales(elements / kQuantizationBlock),
        second_scales(elements / kQuantizationBlock) {
    for (size_t i = 0; i < elements; ++i) gradient[i] = 1e-3f * float(i % 1999) - 1;
  }
  std::vector<float> value, gradient;
  std::vector<uint8_t> first, second;
  std::vector<float> first_scales, second_scales;
};

// Seconds that all cores need together for their parts, in whole blocks.
template <typename Work>
double seconds_of(size_t elements, const Work& work) {
  const size_t cores = std::max(1u, std::thread::hardware_concurrency());
  const size_t part = elements / cores / kQuantizationBlock * kQuantizationBlock;
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::thread> threads;
  threads.reserve(cores);
  for (size_t core = 0; core < cores; ++core)
    threads.emplace_back([&, core] { work(core * part, core + 1 == cores ? elements - core * part : part); });
  for (std::thread& thread : threads) thread.join();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double triad(Arrays& arrays) {
  constexpr double kBytes = 12;  // two numbers read and one written
  const size_t elements = arrays.value.size();
  return kBytes * double(elements) / seconds_of(elements, [&](size_t begin, size_t count) {
           float* value = arrays.value.data() + begin;
           const float* gradient = arrays.gradient.data() + begin;
           for (size_t i = 0; i < count; ++i) value[i] = 0.999f * value[i] + gradient[i];
         });
}

double update(Arrays& arrays) {
  // The value and both moments read and written, the gradient read; a scale of each moment a block.
  constexpr double kBytes = 8 + 4 + 4 + 16.0 / double(kQuantizationBlock);
  const size_t elements = arrays.value.size();
  const spillway::trainer::AdamWNumbers numbers{
      .keep = 0.9999f, .beta1 = 0.9f, .beta2 = 0.95f, .rate = 1e-4f, .correction = 1, .epsilon = 1e-8f};
  return kBytes * double(elements) / seconds_of(elements, [&](size_t begin, size_t count) {
           update_blocks(
               numbers, arrays.value.data() + begin, arrays.gradient.data() + begin,
               {arrays.first.data() + begin, arrays.first_scales.data() + begin / kQuantizationBlock,
                arrays.second.data() + begin, arrays.second_scales.data() + begin / kQuantizationBlock},
               int64_t(count));
         });
}

double median(std::vector<double> numbers) {
  std::nth_element(numbers.begin(), numbers.begin() + ptrdiff_t(numbers.size() / 2), numbers.end());
  return numbers[numbers.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  const size_t millions = argc > 1 ? size_t(std::clamp(std::atoi(argv[1]), 1, 4096)) : 256;
  const int rounds = argc > 2 ? std::clamp(std::atoi(argv[2]), 1, 1000) : 11;
  Arrays arrays(millions << 20);
  std::vector<double> plain, ours;
  for (int round = 0; round < rounds; ++round) {
    plain.push_back(triad(arrays)), ours.push_back(update(arrays));
    std::printf("a*x+y %6.2f GB/s   8-bit AdamW %6.2f GB/s\n", plain.back() / 1e9, ours.back() / 1e9);
  }
  std::printf("{\"benchmark\": \"quantized\", \"ratio\": %.3f}\n", median(ours) / median(plain));
  return 0;
}
