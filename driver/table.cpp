#include "driver/table.h"

#include <dlfcn.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <utility>

#include "base/mutex.h"

namespace spillway::driver {
namespace {

using LookUp = void* (*)(void* library, const char* name);

// Spillway's preloaded library hooks dlsym, and gives the C library's under this name.
LookUp unhooked_look_up() {
  void* unhooked = dlsym(RTLD_DEFAULT, "spillway_unhooked_dlsym");
  return unhooked != nullptr ? reinterpret_cast<LookUp>(unhooked) : &dlsym;
}

template <typename FunctionPointer>
void look_up(void* library, const char* name, FunctionPointer& field) {
  static const LookUp find = unhooked_look_up();
  field = reinterpret_cast<FunctionPointer>(find(library, name));
}

void fill(void* library, Table& table) {
#define SPILLWAY_DRIVER_FUNCTION(result, name, parameters, arguments) look_up(library, #name, table.name);
#include "driver/functions.inc"
#undef SPILLWAY_DRIVER_FUNCTION
  SpillwaySimulatorControlFunction control = nullptr;
  look_up(library, "spillway_simulator_control", control);
  if (control) table.simulator = control();
}

// Where the newest export is missing, an older one of the same meaning and signature stands for it. Of all
// that came after 12.2 and that Spillway calls, this is the only one.
void fall_back(Table& table) {
#pragma push_macro("cuEventElapsedTime")
#undef cuEventElapsedTime
  if (table.cuEventElapsedTime_v2 == nullptr) table.cuEventElapsedTime_v2 = table.cuEventElapsedTime;
#pragma pop_macro("cuEventElapsedTime")
}

std::string version_text(int version) {
  return "CUDA " + std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

// The first function that Spillway cannot do without and that is not there; null if all are.
const char* missing_function(const Table& table) {
#define SPILLWAY_REQUIRED(name) \
  if (table.name == nullptr) return #name;
#include "driver/required.inc"
#undef SPILLWAY_REQUIRED
  return nullptr;
}

// What is wrong with a library that could be loaded, or "" if it is a driver that Spillway can work with.
std::string defect(const Table& table, const std::string& library) {
  if (!table.cuInit || !table.cuDriverGetVersion)
    return library + " is no CUDA driver: it does not export cuInit. Give the path of a libcuda.so.1.";
  int version = 0;
  if (table.cuDriverGetVersion(&version) != CUDA_SUCCESS || version < kOldestVersion)
    return library + " serves " + version_text(version) + ", and Spillway needs " +
           version_text(kOldestVersion) + " or newer: update the GPU driver.";
  if (const char* name = missing_function(table))
    return library + " does not export " + name + ", which Spillway needs: update the GPU driver.";
  if (table.simulator && table.simulator->version != SPILLWAY_SIMULATOR_CONTROL_VERSION)
    return library + " is a simulated driver of another version of Spillway: rebuild it.";
  return "";
}

// The one table of a loaded library; like the library, it is there for ever.
const Table* table_of(void* library, const char* name, std::string& why_not) {
  static Mutex<LockOrder::kLeaf> mutex;
  static auto* const tables SPILLWAY_PT_GUARDED_BY(mutex) = new std::map<void*, std::unique_ptr<const Table>>;
  const Locked lock(mutex);
  auto& table = (*tables)[library];
  if (table) return table.get();
  auto filled = std::make_unique<Table>();
  fill(library, *filled);
  fall_back(*filled);
  why_not = defect(*filled, name);
  if (why_not.empty()) table = std::move(filled);
  return table.get();
}

}  // namespace

const Table* resolve(const char* library, LoadError* error) {
  void* handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  std::string text;
  if (!handle) {
    const char* reason = dlerror();
    text = std::string("the CUDA driver could not be loaded (") + (reason ? reason : library) +
           "): install the GPU driver, or run under 'spillway simulate'.";
  } else if (const Table* table = table_of(handle, library, text)) {
    return table;
  }
  if (error) error->text = text;
  return nullptr;
}

const Table* process_table(LoadError* error) {
  struct Resolved {
    LoadError error;
    const Table* table = nullptr;
    Resolved() {
      const char* library = std::getenv("SPILLWAY_DRIVER");
      table = resolve(library && *library ? library : "libcuda.so.1", &error);
    }
  };
  static const Resolved resolved;
  if (!resolved.table && error) *error = resolved.error;
  return resolved.table;
}

std::vector<const char*> lacking(const Table& table) {
  std::vector<const char*> names;
#define SPILLWAY_DRIVER_FUNCTION(result, name, parameters, arguments) \
  if (table.name == nullptr) names.push_back(#name);
#include "driver/functions.inc"
#undef SPILLWAY_DRIVER_FUNCTION
  return names;
}

std::string describe(const Table& table, CUresult result) {
  const char* name = nullptr;
  const char* text = nullptr;
  if (table.cuGetErrorName) table.cuGetErrorName(result, &name);
  if (table.cuGetErrorString) table.cuGetErrorString(result, &text);
  std::string described = name ? name : "CUDA error " + std::to_string(static_cast<int>(result));
  if (text) described += std::string(" (") + text + ")";
  return described;
}

}  // namespace spillway::driver
