// Virtual time of an optimizer's update with its states on the device and on the host, on a simulated card
// without values; and of the states' copies one by one, as they were before tiles passed through the device
// in a pipeline. One line of JSON.
#include <c10/cuda/CUDAFunctions.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>

#include "driver/simulator_control.h"
#include "trainer/optimizer/optimizer.h"
#include "trainer/residency/host_tensor.h"

namespace {

using namespace spillway::trainer;

constexpr int64_t kRows = 1024, kColumns = 4096;
constexpr size_t kMatrices = 12, kUpdates = 3;

const SpillwaySimulatorControl& simulator() {
  void* driver = ::dlopen("libcuda.so.1", RTLD_NOW);
  const auto function =
      driver == nullptr
          ? nullptr
          : reinterpret_cast<SpillwaySimulatorControlFunction>(::dlsym(driver, "spillway_simulator_control"));
  TORCH_CHECK(function != nullptr, "bench_update runs under 'spillway simulate'");
  return *function();
}

// Until the device is done.
template <typename Work>
double microseconds_of(const Work& work) {
  const auto now = [] {
    c10::cuda::device_synchronize();
    SpillwaySimulatorCounts counts{};
    simulator().counts(&counts);
    return counts.virtual_ns;
  };
  const uint64_t start = now();
  work();
  return double(now() - start) / 1e3;
}

double update_us(const std::vector<at::Tensor>& initial, const TrainConfig& train, Place place) {
  std::vector<std::string> names;
  for (size_t i = 0; i < initial.size(); ++i) names.push_back("w" + std::to_string(i));
  Parameters parameters(names, initial, std::vector<at::Device>(initial.size(), at::Device(at::kCUDA, 0)));
  Optimizer optimizer(parameters, train, place, initial);
  double microseconds = 0;
  for (uint64_t step = 0; step < kUpdates; ++step) {
    optimizer.prepare(step);
    microseconds = microseconds_of([&] { optimizer.commit(); });
  }
  return microseconds;
}

// A tile's two moments there, and back again, each copy waited for.
double copies_us() {
  const at::Tensor host = at::zeros({kTileElements}), device = at::empty({kTileElements}, at::kCUDA);
  const int64_t tiles = int64_t(kMatrices) * kRows * kColumns / kTileElements;
  return microseconds_of([&] {
    for (int64_t i = 0; i < 2 * tiles; ++i) {
      device.copy_(host);
      host.copy_(device);
    }
  });
}

// All states in one direction, by one large copy's speed.
double link_us(double bytes) {
  const at::Tensor host = host_tensor({1 << 26}, at::kByte, at::Device(at::kCUDA, 0)),
                   device = at::empty({1 << 26}, at::TensorOptions(at::kCUDA).dtype(at::kByte));
  return microseconds_of([&] { device.copy_(host, true); }) * bytes / double(1 << 26);
}

}  // namespace

int main() {
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> initial(kMatrices, at::zeros({kRows, kColumns}));
  const TrainConfig train{.steps = 10, .clip = 0};
  const double device = update_us(initial, train, Place::kDevice),
               host = update_us(initial, train, Place::kHost);
  const double copies = copies_us(), serial = device + copies;
  const double bytes = 8.0 * double(kMatrices) * kRows * kColumns;
  const double link = link_us(bytes);
  const double hidden = (device + link - host) / std::min(device, link);
  std::printf(
      "{\"parameters\": %.0f, \"state_bytes\": %.0f, \"device_us\": %.0f, \"link_us\": %.0f, "
      "\"one_by_one_us\": %.0f, \"pipeline_us\": %.0f, \"hidden\": %.3f}\n",
      bytes / 8, bytes, device, link, serial, host, hidden);
}
