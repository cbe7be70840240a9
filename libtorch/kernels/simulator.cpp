#include "libtorch/kernels/simulator.h"

#include <c10/cuda/CUDAException.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include "libtorch/kernels/at_work.h"

namespace spillway::kernels {
namespace {

const SpillwaySimulatorControl* control = nullptr;

// interpose/gate/gate.h; null: the process is not under the preloaded library.
using PassGate = uint32_t (*)(uint32_t passing);
PassGate pass_gate() {
  static const auto found = reinterpret_cast<PassGate>(dlsym(RTLD_DEFAULT, "spillway_pass_gate"));
  return found;
}

const SpillwaySimulatorControl* look_up() {
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (driver == nullptr) return nullptr;
  void* symbol = dlsym(driver, "spillway_simulator_control");
  // The settings are read when the driver starts; the runtime may not have started it yet.
  if (auto start = reinterpret_cast<CUresult (*)(unsigned)>(dlsym(driver, "cuInit"))) start(0);
  dlclose(driver);
  if (symbol == nullptr) return nullptr;
  const auto* found = reinterpret_cast<SpillwaySimulatorControlFunction>(symbol)();
  return found != nullptr && found->version == SPILLWAY_SIMULATOR_CONTROL_VERSION ? found : nullptr;
}

}  // namespace

void find_simulator() {
  control = look_up();
  TORCH_CHECK(control != nullptr,
              "the process has no simulated CUDA driver (run it under `spillway simulate --values compute`)");
}

const SpillwaySimulatorControl& simulator() {
  return *control;
}

bool stores_values() {
  return control->mode() == SPILLWAY_SIMULATOR_COMPUTE;
}

bool models_overheads() {
  return control->overhead(0, "context") > 0;
}

ptrdiff_t alias_offset() {
  static const ptrdiff_t offset = control->alias_offset();
  return offset;
}

AtWork::AtWork(Work work) noexcept
    : before_(pass_gate() == nullptr ? 0 : pass_gate()(static_cast<uint32_t>(work))) {}
AtWork::~AtWork() {
  if (pass_gate() != nullptr) pass_gate()(before_);
}

StandIn::StandIn() noexcept {
  control->stand_in(1);
}
StandIn::~StandIn() {
  control->stand_in(-1);
}

void submit(CUstream stream, const char* name, const SpillwayRange* ranges, size_t count,
            uint64_t duration_ns) {
  const AtWork submitting;
  CUresult result = control->submit(stream, name, ranges, count, duration_ns, nullptr, nullptr);
  if (result == CUDA_ERROR_INVALID_CONTEXT) {
    // This thread's first CUDA work: the runtime makes the device's context current at any call of its own.
    C10_CUDA_CHECK(cudaFree(nullptr));
    result = control->submit(stream, name, ranges, count, duration_ns, nullptr, nullptr);
  }
  TORCH_CHECK(result == CUDA_SUCCESS, name, ": the simulated driver refused the kernel with CUresult ",
              static_cast<int>(result), "; its referee's report says which memory is at fault");
}

}  // namespace spillway::kernels
