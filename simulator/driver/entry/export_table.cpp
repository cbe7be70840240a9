// cuGetExportTable: tables of functions that NVIDIA does not document. There are none here, and a program
// whose own CUDA runtime therefore cannot run is told so.
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include "simulator/driver/entry/call.h"

namespace spillway::simulator {
namespace {

// The table that a CUDA runtime fetches first, and nothing but a runtime asks for.
constexpr std::array<unsigned char, 16> kRuntimeTable = {0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a,
                                                         0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9};

bool is_for_a_runtime(const CUuuid& id) {
  return std::equal(kRuntimeTable.begin(), kRuntimeTable.end(), id.bytes,
                    [](unsigned char a, char b) { return a == static_cast<unsigned char>(b); });
}

// NVIDIA's runtime makes its driver prove that it is NVIDIA's, so these tables would not be enough.
void note_other_runtime(Site site) {
  std::string& file = machine().other_runtime;
  if (!file.empty()) return;
  Dl_info info;
  file = dladdr(site, &info) && info.dli_fname ? info.dli_fname : "the program";
  std::fprintf(stderr,
               "spillway simulator: %s brings a CUDA runtime of its own, which works with NVIDIA's driver "
               "only: its calls fail. Link the shared runtime of CUDA 13 (nvcc -cudart shared)\n",
               file.c_str());
}

}  // namespace
}  // namespace spillway::simulator

CUresult cuGetExportTable(const void** ppExportTable, const CUuuid* pExportTableId) {
  SPILLWAY_SIM_ENTER(cuGetExportTable);
  if (!ppExportTable || !pExportTableId) return CUDA_ERROR_INVALID_VALUE;
  *ppExportTable = nullptr;
  if (spillway::simulator::is_for_a_runtime(*pExportTableId))
    spillway::simulator::note_other_runtime(call.site());
  return CUDA_ERROR_NOT_SUPPORTED;
}
