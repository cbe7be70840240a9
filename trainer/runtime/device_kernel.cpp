#include "trainer/runtime/device_kernel.h"

#include <c10/core/DeviceGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <dlfcn.h>

#include <array>
#include <map>
#include <optional>
#include <utility>

#include "trainer/runtime/device_context.h"

namespace spillway::trainer {
namespace {

CUstream stream_of(at::Device device) {
  return c10::cuda::getCurrentCUDAStream(device.index()).stream();
}

void check(const driver::Table& table, const char* name, CUresult result) {
  TORCH_CHECK(result == CUDA_SUCCESS, "the driver refused ", name, ": ", driver::describe(table, result));
}

NoKernel refused(const driver::Table& table, const char* what, CUresult result) {
  return {.text = std::string("the driver refused ") + what + ": " + driver::describe(table, result),
          .may_come_later = result == CUDA_ERROR_OUT_OF_MEMORY};
}

std::optional<int> capability_of(const driver::Table& table, at::Device device, NoKernel* why_not) {
  int major = 0, minor = 0;
  CUresult result =
      table.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device.index());
  if (result == CUDA_SUCCESS)
    result = table.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device.index());
  if (result == CUDA_SUCCESS) return major * 10 + minor;
  *why_not = refused(table, "its compute capability", result);
  return std::nullopt;
}

class CompiledKernel : public DeviceKernel {
 public:
  CompiledKernel(const char* name, const driver::Table& table, at::Device device, CUfunction function)
      : name_(name), table_(table), device_(device), function_(function) {}

  void launch(const Launch& of) const override {
    const c10::DeviceGuard guard(device_);
    std::array<void*, 1> arguments = {const_cast<void*>(of.argument)};
    check(table_, name_,
          table_.cuLaunchKernel(function_, static_cast<unsigned>(of.blocks), 1, 1, of.threads, 1, 1, 0,
                                stream_of(device_), arguments.data(), nullptr));
  }

 private:
  const char* const name_;
  const driver::Table& table_;
  const at::Device device_;
  const CUfunction function_;
};

using Key = std::pair<std::string, int>;  // a kernel's name, and a card's kind or index

const DeviceBinary* binary_for(const KernelCode& code, int capability, std::string* why_not) {
  static auto* const compiled = new std::map<Key, DeviceBinary>;
  const Key key{code.name, capability};
  if (const auto found = compiled->find(key); found != compiled->end()) return &found->second;
  const auto compiler = RuntimeCompiler::load(why_not);
  auto binary = compiler ? compiler->compile(code.source, capability, why_not) : std::nullopt;
  return binary ? &compiled->emplace(key, std::move(*binary)).first->second : nullptr;
}

std::optional<CUfunction> load_on(const KernelCode& code, const driver::Table& table, at::Device device,
                                  NoKernel* why_not) {
  if (const CUresult result = have_context(table, device); result != CUDA_SUCCESS) {
    *why_not = refused(table, "a context", result);
    return std::nullopt;
  }
  const auto capability = capability_of(table, device, why_not);
  const DeviceBinary* binary = capability ? binary_for(code, *capability, &why_not->text) : nullptr;
  return binary ? load_kernel(table, *binary, code.name, why_not) : std::nullopt;
}

using Load = std::optional<CUfunction>(const KernelCode& code, const driver::Table& table, at::Device device,
                                       NoKernel* why_not);

std::optional<CUfunction> load_once_on(const KernelCode& code, const driver::Table& table, at::Device device,
                                       NoKernel* why_not) {
  static auto* const loaded = new std::map<Key, CUfunction>;
  const Key key{code.name, device.index()};
  if (const auto found = loaded->find(key); found != loaded->end()) return found->second;
  const auto function = load_on(code, table, device, why_not);
  if (function) loaded->emplace(key, *function);
  return function;
}

std::unique_ptr<DeviceKernel> compiled_by(Load& load, const KernelCode& code, const driver::Table& table,
                                          at::Device device, NoKernel* why_not) {
  const c10::DeviceGuard guard(device);
  const auto function = load(code, table, device, why_not);
  return function ? std::make_unique<CompiledKernel>(code.name, table, device, *function) : nullptr;
}

// Launches as PyTorch's go through the hook of a preloaded Spillway, which holds them while mappings change.
const driver::Table& with_hooked_launch(const driver::Table& table) {
  static const driver::Table hooked = [&table] {
    driver::Table changed = table;
    void* library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    void* launch = library ? ::dlsym(library, "cuLaunchKernel") : nullptr;
    if (launch) changed.cuLaunchKernel = reinterpret_cast<decltype(changed.cuLaunchKernel)>(launch);
    return changed;
  }();
  return hooked;
}

class SimulatedKernel : public DeviceKernel {
 public:
  SimulatedKernel(const char* name, const driver::Table& table, at::Device device)
      : name_(name), table_(table), device_(device) {}

  void launch(const Launch& of) const override {
    const c10::DeviceGuard guard(device_);
    const SpillwaySimulatorControl& simulator = *table_.simulator;
    struct Work {
      const Launch& launch;
      ptrdiff_t offset;
    } work{of, simulator.alias_offset()};
    const auto compute = [](void* argument) {
      const auto& [launch, offset] = *static_cast<const Work*>(argument);
      launch.compute(offset);
    };
    const bool computes = simulator.mode() == SPILLWAY_SIMULATOR_COMPUTE;
    const CUstream stream = stream_of(device_);
    check(table_, name_,
          simulator.submit(stream, name_, of.ranges.data(), of.ranges.size(), 0,
                           computes ? +compute : nullptr, &work));
    if (simulator.operators_take_time() == SPILLWAY_SIMULATOR_TIMED)
      check(table_, name_, simulator.operate(stream, nullptr, 0, of.bytes, 0));
  }

 private:
  const char* const name_;
  const driver::Table& table_;
  const at::Device device_;
};

}  // namespace

SpillwayRange device_range(const void* address, uint64_t bytes, bool writes) {
  return {.address = reinterpret_cast<CUdeviceptr>(address), .bytes = bytes, .writes = writes};
}

std::unique_ptr<DeviceKernel> DeviceKernel::make_compiled(const KernelCode& code, const driver::Table& table,
                                                          at::Device device, NoKernel* why_not) {
  return compiled_by(load_on, code, table, device, why_not);
}

std::unique_ptr<DeviceKernel> DeviceKernel::make(const KernelCode& code, at::Device device,
                                                 NoKernel* why_not) {
  driver::LoadError error;
  const driver::Table* table = driver::process_table(&error);
  if (table == nullptr) return why_not->text = error.text, nullptr;
  if (table->simulator != nullptr) return std::make_unique<SimulatedKernel>(code.name, *table, device);
  return compiled_by(load_once_on, code, with_hooked_launch(*table), device, why_not);
}

}  // namespace spillway::trainer
