#include "simulator/runtime/error.h"

#include <cstdio>
#include <set>
#include <string_view>

#include "base/mutex.h"
#include "simulator/runtime/kernels/missing.h"

namespace spillway::runtime {
namespace {

thread_local cudaError_t last_error = cudaSuccess;

struct ErrorText {
  const char* name;
  const char* description;
};

ErrorText text_of(cudaError_t error) {
  switch (error) {
#define SPILLWAY_RUNTIME_ERROR(name, description) \
  case name:                                      \
    return {#name, description};
#include "simulator/runtime/errors.inc"
#undef SPILLWAY_RUNTIME_ERROR
    default:
      return {"unrecognized error code", "unrecognized error code"};
  }
}

bool is_known(cudaError_t error) {
  switch (error) {
#define SPILLWAY_RUNTIME_ERROR(name, description) case name:
#include "simulator/runtime/errors.inc"
#undef SPILLWAY_RUNTIME_ERROR
    return true;
    default:
      return false;
  }
}

}  // namespace

// Since CUDA 10.1 the two lists share their numbers; the driver only has a few codes more.
cudaError_t to_runtime(CUresult result) {
  const auto error = static_cast<cudaError_t>(result);
  return is_known(error) ? error : cudaErrorUnknown;
}

bool is_sticky(cudaError_t error) {
  switch (error) {
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorTensorMemoryLeak:
    case cudaErrorExternalDevice:
    case cudaErrorMpsClientTerminated:
      return true;
    default:
      return false;
  }
}

int refuse_missing(const char* name) {
  static Mutex<LockOrder::kLeaf> mutex;
  static auto* const said SPILLWAY_PT_GUARDED_BY(mutex) =
      new std::set<std::string_view>;  // calls come until the process has ended
  const Locked lock(mutex);
  if (said->insert(name).second)
    std::fprintf(stderr, "spillway simulator: %s is not simulated: returning cudaErrorNotSupported\n", name);
  return finish(cudaErrorNotSupported);
}

cudaError_t finish(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

}  // namespace spillway::runtime

using spillway::runtime::is_sticky;
using spillway::runtime::last_error;
using spillway::runtime::text_of;

extern "C" {

cudaError_t cudaGetLastError() {
  const cudaError_t error = last_error;
  if (!is_sticky(error)) last_error = cudaSuccess;
  return error;
}

cudaError_t cudaPeekAtLastError() {
  return last_error;
}

const char* cudaGetErrorName(cudaError_t error) {
  return text_of(error).name;
}

const char* cudaGetErrorString(cudaError_t error) {
  return text_of(error).description;
}
}
