// A C++ program with LibTorch that knows nothing of Spillway: it queues ten seconds of work in many small
// pieces that are no operators of LibTorch's, and then needs more memory than there is beside what it holds.
// What it queues: `launches`, `graphs`, `copies`, or `own` for launches on the thread's own default stream.
#include <ATen/ATen.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda.h>
#include <dlfcn.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "driver/simulator_control.h"

namespace {

using Clock = std::chrono::steady_clock;
constexpr int64_t kMiB = 1 << 20;
constexpr int kPieces = 16, kLaunches = 64;
constexpr auto kPieceTime = std::chrono::milliseconds(600);

void* driver = nullptr;

template <class Function, class... Arguments>
void call(const char* name, Arguments... arguments) {
  const auto found = reinterpret_cast<Function>(dlsym(driver, name));
  const CUresult result = found == nullptr ? CUDA_ERROR_NOT_FOUND : found(arguments...);
  if (result == CUDA_SUCCESS) return;
  std::printf("%s gave %d\n", name, static_cast<int>(result));
  std::exit(1);
}
#define CALL(name, ...) call<decltype(&(name))>(#name, __VA_ARGS__)

at::Tensor bytes(int64_t count) {
  return at::empty({count}, at::TensorOptions(at::kCUDA).dtype(at::kByte));
}

const SpillwaySimulatorControl& control() {
  static const auto find =
      reinterpret_cast<SpillwaySimulatorControlFunction>(dlsym(driver, "spillway_simulator_control"));
  return *find();
}

// Work on the device that ends at a moment of the host's clock. As on a card, a query does not wait for it.
SpillwayExternalState wait_for(void* end, int64_t timeout_ms) {
  const auto ends = *static_cast<const Clock::time_point*>(end);
  if (timeout_ms < 0) std::this_thread::sleep_until(ends);
  return Clock::now() < ends ? SPILLWAY_EXTERNAL_PENDING : SPILLWAY_EXTERNAL_ENDED;
}

void queue_until(Clock::time_point& end, CUstream stream) {
  SpillwayExternalWork work{};
  work.size = sizeof work;
  work.name = "long";
  work.duration_ns = 1000;
  work.wait = wait_for;
  work.argument = &end;
  if (control().submit_external(stream, &work) != CUDA_SUCCESS) std::exit(1);
}

void launch(const char* name, CUstream stream) {
  call<decltype(&cuLaunchKernel)>(name, control().function("small"), 1, 1, 1, 1, 1, 1, 0, stream, nullptr,
                                  nullptr);
}

CUgraphExec make_graph() {
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  CUgraphExec executable = nullptr;
  CALL(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
  call<decltype(&cuStreamBeginCapture)>("cuStreamBeginCapture_v2", stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  for (int i = 0; i < 2 * kLaunches; ++i) launch("cuLaunchKernel", stream);
  CALL(cuStreamEndCapture, stream, &graph);
  call<decltype(&cuGraphInstantiateWithFlags)>("cuGraphInstantiateWithFlags", &executable, graph, 0);
  CALL(cuStreamDestroy, stream);
  return executable;
}

class Queue {
 public:
  explicit Queue(const std::string& kind) : kind_(kind) {
    if (kind == "graphs") graph_ = make_graph();
    if (kind == "own") stream_ = CU_STREAM_PER_THREAD;
  }
  void fill(const at::Tensor& source, const at::Tensor& target) {
    const Clock::time_point start = Clock::now();
    for (int piece = 0; piece < kPieces; ++piece) {
      ends_[piece] = start + (piece + 1) * kPieceTime;
      queue_until(ends_[piece], stream_);
      queue_small_ones(source, target);
    }
  }

 private:
  void queue_small_ones(const at::Tensor& source, const at::Tensor& target) {
    const auto from = reinterpret_cast<CUdeviceptr>(source.data_ptr());
    const auto to = reinterpret_cast<CUdeviceptr>(target.data_ptr());
    if (graph_ != nullptr) return CALL(cuGraphLaunch, graph_, stream_);
    for (int i = 0; i < kLaunches; ++i) {
      if (kind_ == "copies")
        call<decltype(&cuMemcpyDtoDAsync)>("cuMemcpyDtoDAsync_v2", to, from, size_t{4096}, stream_);
      else if (kind_ == "own")
        launch("cuLaunchKernel_ptsz", nullptr);
      else
        launch("cuLaunchKernel", stream_);
    }
  }

  const std::string kind_;
  CUgraphExec graph_ = nullptr;
  CUstream stream_ = c10::cuda::getCurrentCUDAStream().stream();
  Clock::time_point ends_[kPieces];
};

}  // namespace

int main(int argc, char** argv) {
  driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (argc != 2 || driver == nullptr) return 2;
  const at::Tensor source = bytes(40 * kMiB), target = bytes(40 * kMiB);
  Queue queue(argv[1]);
  queue.fill(source, target);
  const Clock::time_point start = Clock::now();
  try {
    const at::Tensor all = bytes(96 * kMiB);
    std::printf("served");
  } catch (const c10::Error&) {
    std::printf("refused");
  }
  std::printf(" after %.1f s\n", std::chrono::duration<double>(Clock::now() - start).count());
  c10::cuda::device_synchronize();
  return 0;
}
