// Modules, libraries and their functions: names without code. An image loads on a card that could run it, any
// name of a function is found, launches do nothing. The variables of a cubin have memory from the first
// question for their address on.
#include "simulator/driver/machine/module.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <unordered_map>

#include "simulator/cards/fat_binary.h"
#include "simulator/driver/entry/call.h"
#include "simulator/driver/memory/memory.h"

namespace spillway::simulator {
namespace {

// A kernel of a library and the function of a module are one object here.
struct Module;
struct Kernel {
  Module* module;
  std::string name;
};
struct Variable {
  uint64_t bytes = 0;
  std::map<int, CUdeviceptr> addresses;  // by device
};
struct Module {
  int capability = 0;  // of the image that was chosen, as 80
  std::unordered_map<std::string, Variable> variables;
  std::unordered_map<std::string, std::unique_ptr<Kernel>> kernels;
};

struct Loaded {
  std::unordered_map<Module*, std::unique_ptr<Module>> modules;
  std::unordered_set<Kernel*> kernels;
  Module registered;  // what the runtime launches
};
Loaded& loaded() {
  static auto* const made = new Loaded;
  return *made;
}

// The images behind what cuModuleLoadData takes, whose size only its own first bytes tell.
std::vector<cards::Image> images_of(const void* data) {
  constexpr size_t kElfHeader = 64, kFirst = 16;
  switch (cards::kind_of(data, sizeof(uint32_t))) {
    case cards::BinaryKind::kWrapper: {
      const void* container = cards::unwrap(data);
      return container ? images_of(container) : std::vector<cards::Image>{};
    }
    case cards::BinaryKind::kContainer:
      return cards::read_images(data, cards::container_bytes(data, kFirst));
    case cards::BinaryKind::kCubin:
      return cards::read_images(data, kElfHeader);
    case cards::BinaryKind::kPtx:
      return cards::read_images(data, std::strlen(static_cast<const char*>(data)) + 1);
    default:
      return {};
  }
}

CUresult choose(const void* data, int* capability) {
  const auto images = images_of(data);
  if (images.empty()) return CUDA_ERROR_INVALID_IMAGE;
  const cards::Card& card = machine().config.card;
  const cards::Image* image = cards::choose_image(images, card.major, card.minor);
  *capability = image ? image->sm : 0;
  if (image) return CUDA_SUCCESS;
  static bool said = false;
  if (!said)
    std::fprintf(
        stderr,
        "spillway simulator: a module was built for %s: compute capability %d.%d (%s) has no kernel in it\n",
        cards::list_images(images).c_str(), card.major, card.minor, std::string(card.name).c_str());
  said = true;
  return CUDA_ERROR_NO_BINARY_FOR_GPU;
}

// How many bytes a program's own image has, it does not say.
constexpr size_t kUnknownSize = std::numeric_limits<size_t>::max();

// Modules are of a context, libraries of none.
bool lacks_context(CUmodule) {
  return !current_context();
}
bool lacks_context(CUlibrary) {
  return false;
}

template <typename Handle>
CUresult load(Handle* out, const void* image, size_t size = kUnknownSize) {
  if (!out || !image) return CUDA_ERROR_INVALID_VALUE;
  if (lacks_context(Handle{})) return CUDA_ERROR_INVALID_CONTEXT;
  int capability = 0;
  if (const CUresult result = choose(image, &capability); result != CUDA_SUCCESS) return result;
  auto made = std::make_unique<Module>();
  made->capability = capability;
  if (cards::kind_of(image, sizeof(uint32_t)) == cards::BinaryKind::kCubin)
    for (const cards::Variable& variable : cards::read_variables(image, size))
      made->variables[variable.name].bytes = variable.bytes;
  *out = reinterpret_cast<Handle>(made.get());
  Module* key = made.get();
  loaded().modules.emplace(key, std::move(made));
  return CUDA_SUCCESS;
}

// A file is read as its bytes would be, with room behind them for a text's end and the longest header. A
// wrapper holds an address in the program that was linked with it, which in a file means nothing.
template <typename Handle>
CUresult load_file(Handle* out, const char* path) {
  if (!out || !path) return CUDA_ERROR_INVALID_VALUE;
  if (lacks_context(Handle{})) return CUDA_ERROR_INVALID_CONTEXT;
  const std::optional<std::string> read = read_file(path);
  if (!read) return CUDA_ERROR_FILE_NOT_FOUND;
  std::string bytes = *read;
  constexpr size_t kRoom = 256;
  const size_t size = bytes.size();
  bytes.append(kRoom, '\0');
  const cards::BinaryKind kind = cards::kind_of(bytes.data(), size);
  const bool whole =
      kind != cards::BinaryKind::kWrapper &&
      (kind != cards::BinaryKind::kContainer || cards::container_bytes(bytes.data(), size) <= size);
  return whole ? load(out, bytes.data(), size) : CUDA_ERROR_INVALID_IMAGE;
}

void free_variables(const Module& module, Site site) {
  auto& mappings = machine().space.mappings();
  for (const auto& [name, variable] : module.variables)
    for (const auto& [device, address] : variable.addresses)
      if (const auto found = mappings.find(address); found != mappings.end()) free_device(found, site);
}

template <typename Owner>
CUresult find_variable(CUdeviceptr* address, size_t* bytes, Owner owner, const char* name, Site site) {
  const auto module = loaded().modules.find(reinterpret_cast<Module*>(owner));
  if (!name) return CUDA_ERROR_INVALID_VALUE;
  if (module == loaded().modules.end()) return CUDA_ERROR_INVALID_HANDLE;
  const auto found = module->second->variables.find(name);
  if (found == module->second->variables.end()) return CUDA_ERROR_NOT_FOUND;
  if (!current_context()) return CUDA_ERROR_INVALID_CONTEXT;
  Variable& variable = found->second;
  Device& device = *current_context()->device;
  CUdeviceptr& place = variable.addresses[device.ordinal];
  if (place == 0)
    if (const CUresult result = allocate_device(device, variable.bytes, nullptr, site, &place);
        result != CUDA_SUCCESS)
      return result;
  if (address) *address = place;
  if (bytes) *bytes = variable.bytes;
  return CUDA_SUCCESS;
}

template <typename Handle>
CUresult unload(Handle handle, Site site) {
  const auto found = loaded().modules.find(reinterpret_cast<Module*>(handle));
  if (found == loaded().modules.end()) return CUDA_ERROR_INVALID_HANDLE;
  for (const auto& [name, kernel] : found->second->kernels) loaded().kernels.erase(kernel.get());
  free_variables(*found->second, site);
  loaded().modules.erase(found);
  return CUDA_SUCCESS;
}

template <typename Handle, typename Owner>
CUresult find_kernel(Handle* out, Owner owner, const char* name) {
  const auto module = loaded().modules.find(reinterpret_cast<Module*>(owner));
  if (!out || !name) return CUDA_ERROR_INVALID_VALUE;
  if (lacks_context(owner)) return CUDA_ERROR_INVALID_CONTEXT;
  if (module == loaded().modules.end()) return CUDA_ERROR_INVALID_HANDLE;
  auto& kernel = module->second->kernels[name];
  if (!kernel) kernel = std::make_unique<Kernel>(module->first, name);
  loaded().kernels.insert(kernel.get());
  *out = reinterpret_cast<Handle>(kernel.get());
  return CUDA_SUCCESS;
}

template <typename Handle>
Kernel* known(Handle handle) {
  auto* kernel = reinterpret_cast<Kernel*>(handle);
  return loaded().kernels.contains(kernel) ? kernel : nullptr;
}

CUresult attribute(int* value, CUfunction_attribute which, const Kernel* kernel) {
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  switch (which) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *value = 1024;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      *value = 32;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
      *value = kernel ? kernel->module->capability
                      : machine().config.card.major * 10 + machine().config.card.minor;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      *value = 49152;
      return CUDA_SUCCESS;
    default:
      *value = 0;
      return which < CU_FUNC_ATTRIBUTE_MAX ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }
}

// As many blocks as threads allow: registers and shared memory of a kernel without code are not known.
CUresult occupancy(int* blocks, int block_size) {
  if (!blocks || block_size < 1 || block_size > 1024) return CUDA_ERROR_INVALID_VALUE;
  *blocks = std::min(32, 2048 / block_size);
  return CUDA_SUCCESS;
}

}  // namespace

const char* kernel_name(CUfunction function) {
  const Kernel* kernel = known(function);
  return machine().referee.intern(kernel ? kernel->name.c_str() : nullptr);
}

CUfunction function_named(const char* name) {
  Module& module = loaded().registered;
  std::unique_ptr<Kernel>& kernel = module.kernels[name];
  if (!kernel) {
    module.capability = machine().config.card.major * 10 + machine().config.card.minor;
    kernel = std::make_unique<Kernel>(&module, name);
    loaded().kernels.insert(kernel.get());
  }
  return reinterpret_cast<CUfunction>(kernel.get());
}

bool belongs_to_no_module(CUfunction function) {
  const Kernel* kernel = known(function);
  return kernel && kernel->module == &loaded().registered;
}

}  // namespace spillway::simulator

using namespace spillway::simulator;

CUresult cuModuleLoad(CUmodule* module, const char* fname) {
  SPILLWAY_SIM_ENTER(cuModuleLoad);
  return load_file(module, fname);
}
CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  SPILLWAY_SIM_ENTER(cuModuleLoadData);
  return load(module, image);
}
CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int, CUjit_option*, void**) {
  SPILLWAY_SIM_ENTER(cuModuleLoadDataEx);
  return load(module, image);
}
CUresult cuModuleLoadFatBinary(CUmodule* module, const void* fatCubin) {
  SPILLWAY_SIM_ENTER(cuModuleLoadFatBinary);
  return load(module, fatCubin);
}
CUresult cuModuleUnload(CUmodule hmod) {
  SPILLWAY_SIM_ENTER(cuModuleUnload);
  return unload(hmod, call.site());
}
CUresult cuModuleGetFunction(CUfunction* hfunc, CUmodule hmod, const char* name) {
  SPILLWAY_SIM_ENTER(cuModuleGetFunction);
  return find_kernel(hfunc, hmod, name);
}
CUresult cuModuleGetGlobal(CUdeviceptr* dptr, size_t* bytes, CUmodule hmod, const char* name) {
  SPILLWAY_SIM_ENTER(cuModuleGetGlobal);
  return find_variable(dptr, bytes, hmod, name, call.site());
}
CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  SPILLWAY_SIM_ENTER(cuModuleGetLoadingMode);
  if (!mode) return CUDA_ERROR_INVALID_VALUE;
  *mode = CU_MODULE_LAZY_LOADING;
  return CUDA_SUCCESS;
}

CUresult cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option*, void**, unsigned int,
                           CUlibraryOption*, void**, unsigned int) {
  SPILLWAY_SIM_ENTER(cuLibraryLoadData);
  return load(library, code);
}
CUresult cuLibraryLoadFromFile(CUlibrary* library, const char* fileName, CUjit_option*, void**, unsigned int,
                               CUlibraryOption*, void**, unsigned int) {
  SPILLWAY_SIM_ENTER(cuLibraryLoadFromFile);
  return load_file(library, fileName);
}
CUresult cuLibraryUnload(CUlibrary library) {
  SPILLWAY_SIM_ENTER(cuLibraryUnload);
  return unload(library, call.site());
}
CUresult cuLibraryGetKernel(CUkernel* pKernel, CUlibrary library, const char* name) {
  SPILLWAY_SIM_ENTER(cuLibraryGetKernel);
  return find_kernel(pKernel, library, name);
}
CUresult cuLibraryGetModule(CUmodule* pMod, CUlibrary library) {
  SPILLWAY_SIM_ENTER(cuLibraryGetModule);
  if (!pMod) return CUDA_ERROR_INVALID_VALUE;
  if (!loaded().modules.contains(reinterpret_cast<Module*>(library))) return CUDA_ERROR_INVALID_HANDLE;
  *pMod = reinterpret_cast<CUmodule>(library);
  return CUDA_SUCCESS;
}
CUresult cuLibraryGetGlobal(CUdeviceptr* dptr, size_t* bytes, CUlibrary library, const char* name) {
  SPILLWAY_SIM_ENTER(cuLibraryGetGlobal);
  return find_variable(dptr, bytes, library, name, call.site());
}
CUresult cuKernelGetFunction(CUfunction* pFunc, CUkernel kernel) {
  SPILLWAY_SIM_ENTER(cuKernelGetFunction);
  if (!pFunc) return CUDA_ERROR_INVALID_VALUE;
  if (!known(kernel)) return CUDA_ERROR_INVALID_HANDLE;
  *pFunc = reinterpret_cast<CUfunction>(kernel);
  return CUDA_SUCCESS;
}
CUresult cuKernelGetName(const char** name, CUkernel hfunc) {
  SPILLWAY_SIM_ENTER(cuKernelGetName);
  if (!name) return CUDA_ERROR_INVALID_VALUE;
  const Kernel* kernel = known(hfunc);
  if (!kernel) return CUDA_ERROR_INVALID_HANDLE;
  *name = kernel->name.c_str();
  return CUDA_SUCCESS;
}
CUresult cuKernelGetAttribute(int* pi, CUfunction_attribute attrib, CUkernel kernel, CUdevice) {
  SPILLWAY_SIM_ENTER(cuKernelGetAttribute);
  return attribute(pi, attrib, known(kernel));
}
CUresult cuKernelSetAttribute(CUfunction_attribute, int, CUkernel, CUdevice) {
  SPILLWAY_SIM_ENTER(cuKernelSetAttribute);
  return CUDA_SUCCESS;
}
CUresult cuKernelSetCacheConfig(CUkernel, CUfunc_cache, CUdevice) {
  SPILLWAY_SIM_ENTER(cuKernelSetCacheConfig);
  return CUDA_SUCCESS;
}

CUresult cuFuncGetName(const char** name, CUfunction hfunc) {
  SPILLWAY_SIM_ENTER(cuFuncGetName);
  if (!name) return CUDA_ERROR_INVALID_VALUE;
  const Kernel* kernel = known(hfunc);
  if (!kernel) return CUDA_ERROR_INVALID_HANDLE;
  *name = kernel->name.c_str();
  return CUDA_SUCCESS;
}
CUresult cuFuncGetModule(CUmodule* hmod, CUfunction hfunc) {
  SPILLWAY_SIM_ENTER(cuFuncGetModule);
  if (!hmod) return CUDA_ERROR_INVALID_VALUE;
  const Kernel* kernel = known(hfunc);
  if (!kernel) return CUDA_ERROR_INVALID_HANDLE;
  *hmod = reinterpret_cast<CUmodule>(kernel->module);
  return CUDA_SUCCESS;
}
CUresult cuFuncGetAttribute(int* pi, CUfunction_attribute attrib, CUfunction function) {
  SPILLWAY_SIM_ENTER(cuFuncGetAttribute);
  return attribute(pi, attrib, known(function));
}
CUresult cuFuncSetAttribute(CUfunction, CUfunction_attribute, int) {
  SPILLWAY_SIM_ENTER(cuFuncSetAttribute);
  return CUDA_SUCCESS;
}
CUresult cuFuncSetCacheConfig(CUfunction, CUfunc_cache) {
  SPILLWAY_SIM_ENTER(cuFuncSetCacheConfig);
  return CUDA_SUCCESS;
}
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* numBlocks, CUfunction, int blockSize, size_t) {
  SPILLWAY_SIM_ENTER(cuOccupancyMaxActiveBlocksPerMultiprocessor);
  return occupancy(numBlocks, blockSize);
}
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* numBlocks, CUfunction, int blockSize,
                                                              size_t, unsigned int) {
  SPILLWAY_SIM_ENTER(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags);
  return occupancy(numBlocks, blockSize);
}
