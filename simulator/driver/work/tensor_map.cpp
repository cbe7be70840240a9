// Tensor maps, which only kernels read: any will do.
#include <cstring>

#include "simulator/driver/entry/call.h"

namespace spillway::simulator {
namespace {

CUresult encode(CUtensorMap* map, const void* address) {
  if (!map || !address) return CUDA_ERROR_INVALID_VALUE;
  std::memset(map, 0, sizeof *map);
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace spillway::simulator

using namespace spillway::simulator;

CUresult cuTensorMapEncodeTiled(CUtensorMap* tensorMap, CUtensorMapDataType, cuuint32_t, void* globalAddress,
                                const cuuint64_t*, const cuuint64_t*, const cuuint32_t*, const cuuint32_t*,
                                CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                                CUtensorMapFloatOOBfill) {
  SPILLWAY_SIM_ENTER(cuTensorMapEncodeTiled);
  return encode(tensorMap, globalAddress);
}

CUresult cuTensorMapReplaceAddress(CUtensorMap* tensorMap, void* globalAddress) {
  SPILLWAY_SIM_ENTER(cuTensorMapReplaceAddress);
  return tensorMap && globalAddress ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
