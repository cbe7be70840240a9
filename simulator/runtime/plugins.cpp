#include "simulator/runtime/plugins.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/libtorch_version.h"

namespace spillway::runtime {
namespace {

using Entry = int (*)();

enum class State { kWaitingForTorch, kInstalling, kAskedAgain, kDone };
std::atomic<State> state{State::kWaitingForTorch};
thread_local bool this_thread_installs = false;

bool torch_is_loaded() {
  void* torch = dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
  if (torch != nullptr) dlclose(torch);
  return torch != nullptr;
}

struct Plugin {
  std::string path;
  const char* entry_name;
  const char* variable;
  const char* without;  // what a program lacks without it
  Entry entry = nullptr;
};

const char* text_of(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? "" : text;
}

std::vector<Plugin> named_plugins() {
  constexpr const char* kKernels = "SPILLWAY_SIM_KERNELS";
  constexpr const char* kPlugins = "SPILLWAY_SIM_PLUGINS";
  std::vector<Plugin> plugins;
  const auto add = [&plugins](std::string_view path, const char* entry, const char* variable,
                              const char* without) {
    if (!path.empty()) plugins.push_back({std::string(path), entry, variable, without});
  };
  add(text_of(kKernels), "spillway_kernels_install", kKernels, "no value is computed");
  std::string_view rest = text_of(kPlugins);
  while (!rest.empty()) {
    const size_t end = std::min(rest.find(':'), rest.size());
    add(rest.substr(0, end), "spillway_plugin_install", kPlugins, "the program runs without it");
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return plugins;
}

std::vector<Plugin>& plugins() {
  static std::vector<Plugin> named = named_plugins();
  return named;
}

// "_2_15" for LibTorch 2.15; "" where there is none, or it does not say.
std::string torch_version_suffix() {
  const LibTorchVersion version = libtorch_version();
  if (!version.known()) return "";
  return "_" + std::to_string(version.major) + "_" + std::to_string(version.minor);
}

// A library that is built for one LibTorch stands beside where the named one would: libx_2_15.so for libx.so.
std::string for_this_torch(const std::string& path) {
  constexpr std::string_view kEnd = ".so";
  if (access(path.c_str(), F_OK) == 0 || !path.ends_with(kEnd)) return path;
  return path.substr(0, path.size() - kEnd.size()) + torch_version_suffix() + ".so";
}

void load(Plugin& plugin) {
  plugin.path = for_this_torch(plugin.path);
  void* library = dlopen(plugin.path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library != nullptr) plugin.entry = reinterpret_cast<Entry>(dlsym(library, plugin.entry_name));
  if (plugin.entry != nullptr) return;
  const bool is_there = access(plugin.path.c_str(), F_OK) == 0;
  std::fprintf(stderr, "spillway simulator: %s: %s cannot be used%s, %s: %s\n", plugin.variable,
               plugin.path.c_str(), is_there ? "" : " (this Spillway is not built for the PyTorch that runs)",
               plugin.without, dlerror());
}

// True: it is to be asked again.
bool enter(Plugin& plugin) {
  const int code = plugin.entry();
  if (code != 0 && code != kPluginLater) {
    std::fprintf(stderr, "spillway simulator: %s of %s failed with %d, %s\n", plugin.entry_name,
                 plugin.path.c_str(), code, plugin.without);
  }
  return code == kPluginLater;
}

// Runs the entries of all that are not installed yet. True: some are still to be asked again.
bool enter_all() {
  this_thread_installs = true;
  bool again = false;
  for (Plugin& plugin : plugins()) {
    if (plugin.entry == nullptr) continue;
    if (enter(plugin)) {
      again = true;
    } else {
      plugin.entry = nullptr;
    }
  }
  this_thread_installs = false;
  return again;
}

void install() {
  this_thread_installs = true;
  for (Plugin& plugin : plugins()) load(plugin);
  state.store(enter_all() ? State::kAskedAgain : State::kDone, std::memory_order_release);
  state.notify_all();
}

void ask_again() {
  static std::atomic_flag busy;
  if (busy.test_and_set(std::memory_order_acquire)) return;  // another thread is asking
  if (state.load(std::memory_order_acquire) == State::kAskedAgain && !enter_all())
    state.store(State::kDone, std::memory_order_release);
  busy.clear(std::memory_order_release);
}

}  // namespace

void install_plugins(Moment moment) {
  State seen = state.load(std::memory_order_acquire);
  if (seen == State::kDone || this_thread_installs) return;
  if (seen == State::kAskedAgain) {
    if (moment == Moment::kDevice) ask_again();
    return;
  }
  if (plugins().empty()) {
    state.store(State::kDone, std::memory_order_release);
    return;
  }
  if (seen == State::kWaitingForTorch) {
    if (!torch_is_loaded()) return;
    if (state.compare_exchange_strong(seen, State::kInstalling)) {
      install();
      return;
    }
  }
  state.wait(State::kInstalling, std::memory_order_acquire);
}

}  // namespace spillway::runtime
