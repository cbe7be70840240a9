// cuGetProcAddress: the function that a name means in a version of CUDA.
#include <algorithm>
#include <string_view>

#include "simulator/driver/entry/driver_version.h"
#include "simulator/driver/entry/functions.h"

using spillway::simulator::export_of;
using spillway::simulator::find_function;
using spillway::simulator::Function;
using spillway::simulator::kDriverVersion;

CUresult cuGetProcAddress_v2(const char* symbol, void** pfn, int cudaVersion, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* symbolStatus) {
  if (!symbol || !pfn || (flags & ~cuuint64_t{3})) return CUDA_ERROR_INVALID_VALUE;
  const bool per_thread = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  *pfn = nullptr;
  CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
  const Function found = find_function(symbol, std::min(cudaVersion, kDriverVersion), per_thread);
  if (found != Function::kCount)
    *pfn = export_of(found).address;
  else
    status = find_function(symbol, kDriverVersion, true) == Function::kCount
                 ? CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND
                 : CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
  // As the real driver: who asks for the status gets it there, and success.
  if (symbolStatus) *symbolStatus = status;
  return symbolStatus || *pfn ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
