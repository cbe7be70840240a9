#include "tools/gpu_probe/kernels.h"

#include "tools/gpu_probe/output.h"

extern const char kKernels[];

namespace spillway::probe {
namespace {

constexpr unsigned kThreads = 256;
// Two a multiprocessor of the largest card.
constexpr unsigned kBlocks = 320;

}  // namespace

Kernels::Kernels() {
  device();
  result = cuda().cuModuleLoadData(&module_, kKernels);
  if (result != CUDA_SUCCESS) return;
  cuda().cuModuleGetFunction(&spin_, module_, "spin");
  cuda().cuModuleGetFunction(&fill_, module_, "fill");
  cuda().cuModuleGetFunction(&add_one_, module_, "add_one");
  cuda().cuModuleGetFunction(&sum_, module_, "sum");
  void* flag = nullptr;
  result = cuda().cuMemHostAlloc(&flag, 4096, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
  if (result != CUDA_SUCCESS) return;
  stop_flag_ = static_cast<uint32_t*>(flag);
  *stop_flag_ = 0;
  stop_ = reinterpret_cast<CUdeviceptr>(flag);  // unified addresses
  CUdeviceptr tried = 0;
  uint32_t seen = 0;
  if (cuda().cuMemAlloc(&tried, 4096) != CUDA_SUCCESS) return;
  fill(nullptr, tried, 1024, 0x5eed);
  cuda().cuMemcpyDtoH(&seen, tried + 4092, 4);
  cuda().cuMemFree(tried);
  computes = seen == 0x5eed;
}

CUresult Kernels::launch(CUfunction function, CUstream stream, unsigned blocks, void** arguments) const {
  return cuda().cuLaunchKernel(function, blocks, 1, 1, kThreads, 1, 1, 0, stream, arguments, nullptr);
}

CUresult Kernels::spin(CUstream stream, double milliseconds) const {
  auto nanoseconds = static_cast<uint64_t>(milliseconds * 1e6);
  CUdeviceptr stop = stop_;
  void* arguments[] = {&nanoseconds, &stop};
  return cuda().cuLaunchKernel(spin_, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr);
}

CUresult Kernels::fill(CUstream stream, CUdeviceptr to, uint64_t count, uint32_t value) const {
  void* arguments[] = {&to, &count, &value};
  return launch(fill_, stream, kBlocks, arguments);
}

CUresult Kernels::add_one(CUstream stream, CUdeviceptr to, uint64_t count) const {
  void* arguments[] = {&to, &count};
  return launch(add_one_, stream, kBlocks, arguments);
}

CUresult Kernels::sum(CUstream stream, CUdeviceptr from, uint64_t count, CUdeviceptr out) const {
  void* arguments[] = {&from, &count, &out};
  return launch(sum_, stream, kBlocks, arguments);
}

CUresult Kernels::atomic(const char* name, CUstream stream, CUdeviceptr to, uint32_t count,
                         unsigned blocks) const {
  CUfunction function = nullptr;
  const CUresult found = cuda().cuModuleGetFunction(&function, module_, name);
  void* arguments[] = {&to, &count};
  return found == CUDA_SUCCESS ? launch(function, stream, blocks, arguments) : found;
}

void Kernels::end_spinning(CUstream stream) const {
  volatile uint32_t* flag = stop_flag_;
  *flag = 1;
  cuda().cuStreamSynchronize(stream);
  *flag = 0;
}

const Kernels& kernels() {
  static const Kernels loaded;
  return loaded;
}

bool kernels_or_say() {
  const Kernels& loaded = kernels();
  if (loaded.result != CUDA_SUCCESS)
    say("kernels", loaded.result);
  else if (!loaded.computes)
    say("kernels", "no kernels here: a launch wrote nothing");
  return loaded.computes;
}

}  // namespace spillway::probe
