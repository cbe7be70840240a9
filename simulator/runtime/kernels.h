// Kernels for true values: the library that SPILLWAY_SIM_KERNELS names, loaded into a program that knows
// nothing of it.
//
// Thread-safety: any thread may call; one installs, the others wait for it, and calls that the installation
// itself makes pass through. Ownership: the library is never unloaded. Errors: a library that can not be
// loaded or installed is one line on stderr, and the program goes on with kernels that do nothing.
#pragma once

namespace spillway::runtime {

// Installs the kernels as soon as the process has LibTorch's CUDA library; afterwards costs one load. Holds
// no lock while it loads: the library's constructors may call CUDA from any thread.
void install_kernels_once();

}  // namespace spillway::runtime
