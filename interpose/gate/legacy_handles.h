// A program that shares mapped memory by cuIpcGetMemHandle, which no driver allows: what to set is said once.
//
// Thread-safety: any thread. Errors: none; what the driver answers goes to the program.
#pragma once
#include <cuda.h>

#include "interpose/hooks/functions.h"

namespace spillway::interpose {

[[gnu::cold]] void explain_refused_handle(CUdeviceptr address);

template <Function function>
struct LegacyHandles {
  template <class... Parameters>
  static void refused(Parameters...) {}
};

template <>
struct LegacyHandles<Function::cuIpcGetMemHandle> {
  static void refused(const CUipcMemHandle*, CUdeviceptr address) { explain_refused_handle(address); }
};

}  // namespace spillway::interpose
