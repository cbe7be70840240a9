// The driver's log. Nothing is ever written to it: what the simulator has to say is on stderr and in its
// report.

#include "simulator/driver/entry/functions.h"

namespace spillway::simulator {
namespace {

// Any handle that is not null: all callbacks are alike, because none is ever called.
CUlogsCallbackHandle the_handle() {
  static char place;
  return reinterpret_cast<CUlogsCallbackHandle>(&place);
}

}  // namespace
}  // namespace spillway::simulator

using namespace spillway::simulator;

CUresult cuLogsRegisterCallback(CUlogsCallback callback, void*, CUlogsCallbackHandle* out) {
  if (callback == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (out != nullptr) *out = the_handle();
  return CUDA_SUCCESS;
}

CUresult cuLogsUnregisterCallback(CUlogsCallbackHandle callback) {
  return callback == the_handle() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuLogsCurrent(CUlogIterator* out, unsigned flags) {
  if (out == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  *out = 0;
  return CUDA_SUCCESS;
}

CUresult cuLogsDumpToMemory(CUlogIterator* iterator, char* buffer, size_t* size, unsigned flags) {
  if (buffer == nullptr || size == nullptr || *size == 0 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (iterator != nullptr) *iterator = 0;
  *buffer = 0;
  *size = 0;
  return CUDA_SUCCESS;
}
