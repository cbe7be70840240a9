// The shim: the library that makes Spillway the allocator of one version of LibTorch.
//
// Thread-safety: any thread. Ownership: it is loaded for ever. Errors: returned as text; "" is success.
#pragma once
#include <dlfcn.h>

#include <string>

#include "base/libtorch_version.h"

namespace spillway::libtorch {

// "libspillway_torch_2_15.so", its file for that version.
std::string shim_name(const LibTorchVersion& version);

// Null: dlerror() says why.
void* open_shim(const std::string& path, int scope = RTLD_LOCAL);

// Makes Spillway LibTorch's allocator in this process. `scope`: of its symbols, as dlopen has it.
std::string install_shim(const std::string& path, int scope = RTLD_LOCAL);

}  // namespace spillway::libtorch
