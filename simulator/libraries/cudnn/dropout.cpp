// Dropout's random states: the program's memory, of a size that the library gives.
#include "simulator/libraries/cudnn/handle.h"

namespace spillway::cudnn {
namespace {

const Computation initialize_states("cudnnSetDropoutDescriptor");

cudnnStatus_t set(cudnnDropoutDescriptor_t dropout, cudnnHandle_t handle, float probability,
                  const void* states, size_t bytes) {
  if (dropout == nullptr || handle == nullptr) return kInvalid;
  if (probability < 0 || probability > 1) return fail(CUDNN_STATUS_BAD_PARAM, "a probability is from 0 to 1");
  const auto needed = static_cast<size_t>(dropout_states(multiprocessors(), threads_of_multiprocessor()));
  if (states != nullptr && bytes < needed) {
    return fail(CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT, "the dropout's states are too small");
  }
  dropout->probability = probability;
  return kSuccess;
}

}  // namespace
}  // namespace spillway::cudnn

using namespace spillway::cudnn;

extern "C" {

cudnnStatus_t cudnnSetDropoutDescriptor(cudnnDropoutDescriptor_t dropout, cudnnHandle_t handle,
                                        float probability, void* states, size_t bytes, unsigned long long) {
  const cudnnStatus_t status = set(dropout, handle, probability, states, bytes);
  if (status != CUDNN_STATUS_SUCCESS || states == nullptr) return status;
  return library.launch(handle, initialize_states);
}

cudnnStatus_t cudnnRestoreDropoutDescriptor(cudnnDropoutDescriptor_t dropout, cudnnHandle_t handle,
                                            float probability, void* states, size_t bytes,
                                            unsigned long long) {
  return set(dropout, handle, probability, states, bytes);
}
}
