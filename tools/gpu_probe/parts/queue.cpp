// Point 12: launches that take five seconds in all. From which one on does a launch wait for room in the
// queue, and how long is the host then held?
#include <algorithm>
#include <vector>

#include "tools/gpu_probe/kernels.h"
#include "tools/gpu_probe/output.h"
#include "tools/gpu_probe/parts.h"

namespace spillway::probe {

void ask_queue() {
  if (!kernels_or_say()) return;
  constexpr int kLaunches = 1500;
  constexpr double kWaitsUs = 1000;
  const Stream stream;
  std::vector<double> took;
  int first = -1;
  const double start = now_us();
  for (int i = 0; i < kLaunches; ++i) {
    const double begin = now_us();
    if (kernels().spin(stream.handle, 5.0) != CUDA_SUCCESS) break;
    took.push_back(now_us() - begin);
    if (first < 0 && took.back() > kWaitsUs && i > 8) first = i;
    if (now_us() - start > 12e6) break;
  }
  const double queued = now_us() - start;
  stream.wait();
  say("the first launch that waits", first);
  say_times("a launch", took);
  say("queueing", queued / 1e6, "s", {{"launches", static_cast<int>(took.size())}});
  say("until all had run", (now_us() - start) / 1e6, "s");
}

}  // namespace spillway::probe
