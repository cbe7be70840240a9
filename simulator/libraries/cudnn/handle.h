// The cuDNN handle, and what every call does with it.
//
// Thread-safety: as cuDNN: one handle, one thread at a time. Ownership: descriptors belong to the program
// that creates them. Errors: cuDNN's statuses; the thread's last error has the reason, for
// cudnnGetLastErrorString. Units: bytes.
#pragma once
#include <cudnn.h>

#include <string>
#include <type_traits>

#include "simulator/libraries/cudnn/cudnn_workspace.h"
#include "simulator/libraries/cudnn/tensors.h"
#include "simulator/libraries/library.h"

struct cudnnContext {
  cudaStream_t stream = nullptr;
  spillway::stand_in::HandleMemory memory;
};

namespace spillway::cudnn {

using stand_in::Computation;

constexpr cudnnStatus_t kSuccess = CUDNN_STATUS_SUCCESS;
constexpr cudnnStatus_t kInvalid = CUDNN_STATUS_BAD_PARAM_NULL_POINTER;

// `status`, with the reason kept for cudnnGetLastErrorString.
cudnnStatus_t fail(cudnnStatus_t status, std::string reason);
const std::string& last_error();

// Its failures have reasons.
struct Library : stand_in::Library<cudnnStatus_t> {
  cudnnStatus_t launch(cudnnHandle_t handle, const Computation& computation) const {
    if (handle == nullptr) return fail(kInvalid, "the handle is a null pointer");
    return status_of(computation.launch(handle->stream));
  }
  cudnnStatus_t refuse(const char* function, const void* caller) const {
    return fail(stand_in::Library<cudnnStatus_t>::refuse(function, caller),
                std::string(function) + " is not simulated");
  }
};
inline constexpr Library library{{.code_row = "cudnn.library",
                                  .handle_row = "cudnn.handle",
                                  .success = kSuccess,
                                  .invalid = kInvalid,
                                  .not_initialized = CUDNN_STATUS_NOT_INITIALIZED,
                                  .no_host_memory = CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED,
                                  .no_memory = CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED,
                                  .failed = CUDNN_STATUS_EXECUTION_FAILED_CUDART,
                                  .not_supported = CUDNN_STATUS_NOT_SUPPORTED,
                                  .not_supported_name = "CUDNN_STATUS_NOT_SUPPORTED"}};

}  // namespace spillway::cudnn
