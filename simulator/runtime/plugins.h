// Libraries that join a program which knows nothing of them, once it has LibTorch's CUDA library: the CPU
// kernels for true values (SPILLWAY_SIM_KERNELS, entered at `spillway_kernels_install`) and those that
// SPILLWAY_SIM_PLUGINS names, separated by colons (entered at `spillway_plugin_install`).
//
// The entry takes nothing and returns an int: 0 installed; kPluginLater: not yet, ask again when a device
// is next selected or asked for; anything else is a failure.
//
// Thread-safety: any thread may call; one installs, the others wait for the first attempt, and calls that the
// installation itself makes pass through. Ownership: a library is never unloaded. Errors: a library that can
// not be loaded or installed is one line on stderr, and the program goes on without it.
#pragma once

namespace spillway::runtime {

constexpr int kPluginLater = -1;

// The count of devices is asked for by libraries that are half built (PyTorch's allocator among them): a
// plugin that waits for them is not asked again there.
enum class Moment { kCount, kDevice };

// Installs the plugins as soon as the process has LibTorch's CUDA library; afterwards costs one load. Holds
// no lock while it loads: the library's constructors may call CUDA from any thread.
void install_plugins(Moment moment);

}  // namespace spillway::runtime
