// The cuDNN handle, and what every call does with it.
//
// Thread-safety: as cuDNN: one handle, one thread at a time. Ownership: descriptors belong to the program
// that creates them. Errors: cuDNN's statuses; the thread's last error has the reason, for
// cudnnGetLastErrorString. Units: bytes.
#pragma once
#include <cudnn.h>

#include <new>
#include <string>
#include <type_traits>

#include "simulator/libraries/computation.h"
#include "simulator/libraries/cudnn/cudnn_workspace.h"
#include "simulator/libraries/cudnn/tensors.h"
#include "simulator/libraries/handle_memory.h"

struct cudnnContext {
  cudaStream_t stream = nullptr;
  spillway::stand_in::HandleMemory memory;
};

namespace spillway::cudnn {

using stand_in::Computation;

constexpr cudnnStatus_t kSuccess = CUDNN_STATUS_SUCCESS;
constexpr cudnnStatus_t kInvalid = CUDNN_STATUS_BAD_PARAM_NULL_POINTER;

cudnnStatus_t status_of(cudaError_t error);

// `status`, with the reason kept for cudnnGetLastErrorString.
cudnnStatus_t fail(cudnnStatus_t status, std::string reason);
const std::string& last_error();

cudnnStatus_t launch(cudnnHandle_t handle, const Computation& computation);

cudnnStatus_t refuse(const char* name, const void* caller);

template <class Opaque>
cudnnStatus_t create(Opaque** made) {
  if (made == nullptr) return kInvalid;
  *made = new (std::nothrow) Opaque;
  return *made == nullptr ? CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED : kSuccess;
}

template <class Opaque>
cudnnStatus_t destroy(Opaque* made) {
  delete made;
  return kSuccess;
}

}  // namespace spillway::cudnn
