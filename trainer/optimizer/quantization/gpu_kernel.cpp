#include "trainer/optimizer/quantization/gpu_kernel.h"
#include "trainer/runtime/device_context.h"

#include <c10/core/DeviceGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <dlfcn.h>

#include <array>
#include <map>
#include <optional>
#include <utility>

extern const char spillway_blockwise_update_source[];
extern const char spillway_code_map_source[];

namespace spillway::trainer {
namespace {

CUstream stream_of(at::Device device) {
  return c10::cuda::getCurrentCUDAStream(device.index()).stream();
}

void check(const driver::Table& table, CUresult result) {
  TORCH_CHECK(result == CUDA_SUCCESS, "the driver refused ", kBlockwiseKernel, ": ",
              driver::describe(table, result));
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

class CompiledKernel : public BlockwiseKernel {
 public:
  CompiledKernel(const driver::Table& table, at::Device device, CUfunction function)
      : table_(table), device_(device), function_(function) {}

  void update(const BlockwiseUpdate& of) const override {
    const c10::DeviceGuard guard(device_);
    const auto grid = static_cast<unsigned>((warp::blocks_of(of) + kWarps - 1) / kWarps);
    std::array<void*, 1> arguments = {const_cast<BlockwiseUpdate*>(&of)};
    check(table_, table_.cuLaunchKernel(function_, grid, 1, 1, kWarps * kWarpLanes, 1, 1, 0,
                                        stream_of(device_), arguments.data(), nullptr));
  }

 private:
  const driver::Table& table_;
  const at::Device device_;
  const CUfunction function_;
};

const DeviceBinary* binary_for(int capability, std::string* why_not) {
  static auto* const compiled = new std::map<int, DeviceBinary>;
  if (const auto found = compiled->find(capability); found != compiled->end()) return &found->second;
  const auto compiler = RuntimeCompiler::load(why_not);
  auto binary = compiler ? compiler->compile(blockwise_source(), capability, why_not) : std::nullopt;
  return binary ? &compiled->emplace(capability, std::move(*binary)).first->second : nullptr;
}

std::optional<CUfunction> load_on(const driver::Table& table, at::Device device, NoKernel* why_not) {
  if (const CUresult result = have_context(table, device); result != CUDA_SUCCESS) {
    *why_not = refused(table, "a context", result);
    return std::nullopt;
  }
  const auto capability = capability_of(table, device, why_not);
  const DeviceBinary* binary = capability ? binary_for(*capability, &why_not->text) : nullptr;
  return binary ? load_kernel(table, *binary, kBlockwiseKernel, why_not) : std::nullopt;
}

using Load = std::optional<CUfunction>(const driver::Table& table, at::Device device, NoKernel* why_not);

std::optional<CUfunction> load_once_on(const driver::Table& table, at::Device device, NoKernel* why_not) {
  static auto* const loaded = new std::map<int, CUfunction>;  // by device index
  if (const auto found = loaded->find(device.index()); found != loaded->end()) return found->second;
  const auto function = load_on(table, device, why_not);
  if (function) loaded->emplace(device.index(), *function);
  return function;
}

std::unique_ptr<BlockwiseKernel> compiled_by(Load& load, const driver::Table& table, at::Device device,
                                             NoKernel* why_not) {
  const c10::DeviceGuard guard(device);
  const auto function = load(table, device, why_not);
  return function ? std::make_unique<CompiledKernel>(table, device, *function) : nullptr;
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

// What it reads and writes.
std::array<SpillwayRange, 6> ranges_of(const BlockwiseUpdate& of) {
  const auto elements = static_cast<uint64_t>(of.elements),
             scales = sizeof(float) * static_cast<uint64_t>(warp::blocks_of(of));
  const auto range = [](const void* address, uint64_t bytes, bool writes) {
    return SpillwayRange{reinterpret_cast<CUdeviceptr>(address), bytes, writes};
  };
  return {
      range(of.value, sizeof(float) * elements, true), range(of.gradient, sizeof(float) * elements, false),
      range(of.moments.first_codes, elements, true),   range(of.moments.first_scales, scales, true),
      range(of.moments.second_codes, elements, true),  range(of.moments.second_scales, scales, true)};
}

class SimulatedKernel : public BlockwiseKernel {
 public:
  SimulatedKernel(const driver::Table& table, at::Device device) : table_(table), device_(device) {}

  void update(const BlockwiseUpdate& of) const override {
    const c10::DeviceGuard guard(device_);
    const std::array<SpillwayRange, 6> ranges = ranges_of(of);
    const bool computes = table_.simulator->mode() == SPILLWAY_SIMULATOR_COMPUTE;
    BlockwiseUpdate on_host = computes ? at_aliases(of) : of;
    check(table_, table_.simulator->submit(stream_of(device_), kBlockwiseKernel, ranges.data(), ranges.size(),
                                           0, computes ? &compute : nullptr, &on_host));
  }

 private:
  static void compute(void* update) {
    const auto& of = *static_cast<const BlockwiseUpdate*>(update);
    update_blocks_by_lanes(of, 0, warp::blocks_of(of));
  }

  // Where the host reads and writes what lies at these addresses of the card.
  BlockwiseUpdate at_aliases(BlockwiseUpdate of) const {
    const ptrdiff_t offset = table_.simulator->alias_offset();
    const auto moved = [offset]<typename T>(T* address) {
      return reinterpret_cast<T*>(reinterpret_cast<intptr_t>(address) + offset);
    };
    of.value = moved(of.value), of.gradient = moved(of.gradient);
    of.moments = {moved(of.moments.first_codes), moved(of.moments.first_scales),
                  moved(of.moments.second_codes), moved(of.moments.second_scales)};
    return of;
  }

  const driver::Table& table_;
  const at::Device device_;
};

}  // namespace

DeviceSource blockwise_source() {
  return {{{"trainer/optimizer/quantization/blockwise_update.h", spillway_blockwise_update_source},
           {"trainer/optimizer/quantization/code_map.h", spillway_code_map_source}}};
}

std::unique_ptr<BlockwiseKernel> BlockwiseKernel::make_compiled(const driver::Table& table, at::Device device,
                                                                NoKernel* why_not) {
  return compiled_by(load_on, table, device, why_not);
}

std::unique_ptr<BlockwiseKernel> BlockwiseKernel::make(at::Device device, NoKernel* why_not) {
  driver::LoadError error;
  const driver::Table* table = driver::process_table(&error);
  if (table == nullptr) return why_not->text = error.text, nullptr;
  if (table->simulator != nullptr) return std::make_unique<SimulatedKernel>(*table, device);
  return compiled_by(load_once_on, with_hooked_launch(*table), device, why_not);
}

}  // namespace spillway::trainer
