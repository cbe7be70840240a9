#include "driver/mapping.h"

namespace spillway::driver {

CUresult map(const Table& table, CUdeviceptr address, std::span<const Page> pages,
             std::span<const CUmemAccessDesc> access) {
  CUdeviceptr end = address;
  CUresult result = CUDA_SUCCESS;
  for (const Page& page : pages) {
    result = table.cuMemMap(end, page.bytes, 0, page.handle, 0);
    if (result != CUDA_SUCCESS) break;
    end += page.bytes;
  }
  if (result == CUDA_SUCCESS && end > address)
    result = table.cuMemSetAccess(address, end - address, access.data(), access.size());
  if (result != CUDA_SUCCESS && end > address) unmap(table, address, end - address);
  return result;
}

CUresult unmap(const Table& table, CUdeviceptr address, uint64_t bytes) {
  return table.cuMemUnmap(address, bytes);
}

}  // namespace spillway::driver
