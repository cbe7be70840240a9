// Version, errors, handles and streams.
#include <cstdio>
#include <memory>

#include "simulator/libraries/cudnn/handle.h"
#include "simulator/libraries/pinned.h"

namespace dnn = spillway::cudnn;
using spillway::stand_in::pinned_versions;

extern "C" {

size_t cudnnGetVersion() {
  return static_cast<size_t>(pinned_versions().cudnn);
}

size_t cudnnGetCudartVersion() {
  return CUDART_VERSION;
}

cudnnStatus_t cudnnGetProperty(libraryPropertyType type, int* value) {
  if (value == nullptr) return dnn::kInvalid;
  switch (type) {
    case MAJOR_VERSION:
      *value = pinned_versions().cudnn / 10000;
      return CUDNN_STATUS_SUCCESS;
    case MINOR_VERSION:
      *value = pinned_versions().cudnn / 100 % 100;
      return CUDNN_STATUS_SUCCESS;
    case PATCH_LEVEL:
      *value = pinned_versions().cudnn % 100;
      return CUDNN_STATUS_SUCCESS;
    default:
      return CUDNN_STATUS_BAD_PARAM;
  }
}

const char* cudnnGetErrorString(cudnnStatus_t status) {
#define SPILLWAY_CUDNN_STATUS(name) \
  case name:                        \
    return #name
  switch (static_cast<int>(status)) {
    SPILLWAY_CUDNN_STATUS(CUDNN_STATUS_SUCCESS);
    SPILLWAY_CUDNN_STATUS(CUDNN_STATUS_NOT_INITIALIZED);
    SPILLWAY_CUDNN_STATUS(CUDNN_STATUS_BAD_PARAM);
    SPILLWAY_CUDNN_STATUS(CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
    SPILLWAY_CUDNN_STATUS(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED);
    SPILLWAY_CUDNN_STATUS(CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND);
    SPILLWAY_CUDNN_STATUS(CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT);
    SPILLWAY_CUDNN_STATUS(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH);
    SPILLWAY_CUDNN_STATUS(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE);
    SPILLWAY_CUDNN_STATUS(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE);
    SPILLWAY_CUDNN_STATUS(CUDNN_STATUS_NOT_SUPPORTED);
    SPILLWAY_CUDNN_STATUS(CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN);
    SPILLWAY_CUDNN_STATUS(CUDNN_STATUS_NOT_SUPPORTED_SHAPE);
    SPILLWAY_CUDNN_STATUS(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE);
    SPILLWAY_CUDNN_STATUS(CUDNN_STATUS_NOT_SUPPORTED_LAYOUT);
    SPILLWAY_CUDNN_STATUS(CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH);
    SPILLWAY_CUDNN_STATUS(CUDNN_STATUS_INTERNAL_ERROR);
    SPILLWAY_CUDNN_STATUS(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED);
    SPILLWAY_CUDNN_STATUS(CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED);
    SPILLWAY_CUDNN_STATUS(CUDNN_STATUS_EXECUTION_FAILED);
    SPILLWAY_CUDNN_STATUS(CUDNN_STATUS_EXECUTION_FAILED_CUDART);
    default:
      return "CUDNN_UNKNOWN_STATUS";
  }
#undef SPILLWAY_CUDNN_STATUS
}

void cudnnGetLastErrorString(char* message, size_t max_size) {
  if (message != nullptr && max_size > 0) std::snprintf(message, max_size, "%s", dnn::last_error().c_str());
}

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  return dnn::library.create_handle(handle);
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  return dnn::library.destroy(handle);
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  if (handle == nullptr) return dnn::kInvalid;
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t* stream) {
  if (handle == nullptr || stream == nullptr) return dnn::kInvalid;
  *stream = handle->stream;
  return CUDNN_STATUS_SUCCESS;
}
}
