// Point 18: what it costs to ask how much is free: with nothing, with many mappings, beside a kernel, by
// threads.
#include <thread>
#include <vector>

#include "tools/gpu_probe/kernels.h"
#include "tools/gpu_probe/memory.h"
#include "tools/gpu_probe/output.h"
#include "tools/gpu_probe/parts.h"

namespace spillway::probe {
namespace {

std::vector<double> ask(int times) {
  std::vector<double> took;
  cuda().cuCtxSetCurrent(context());
  for (int i = 0; i < times; ++i) {
    size_t unused = 0, total = 0;
    const double start = now_us();
    cuda().cuMemGetInfo(&unused, &total);
    took.push_back(now_us() - start);
  }
  return took;
}

void ask_by_threads(int threads) {
  std::vector<std::vector<double>> took(static_cast<size_t>(threads));
  {
    std::vector<std::jthread> running;
    for (auto& one : took) running.emplace_back([&one] { one = ask(50); });
  }
  std::vector<double> all;
  for (const auto& one : took) all.insert(all.end(), one.begin(), one.end());
  say_times("cuMemGetInfo", all, {{"when", "four threads at once"}});
}

}  // namespace

void ask_free_memory() {
  device();
  say_times("cuMemGetInfo", ask(100), {{"when", "nothing is mapped"}});
  {
    const Mapped many(2 * kMiB, 2048, on_device());
    if (many.result == CUDA_SUCCESS) say_times("cuMemGetInfo", ask(100), {{"when", "4 GiB are mapped"}});
  }
  ask_by_threads(4);
  if (!kernels_or_say()) return;
  const Stream stream;
  kernels().spin(stream.handle, 300);
  say_times("cuMemGetInfo", ask(100), {{"when", "a kernel runs"}});
  stream.wait();
}

}  // namespace spillway::probe
