// cuFFT: plans by number. The work area of a plan is MODELLED after cuFFT's documentation (Accuracy and
// Performance; cufftEstimate): one copy of the complex data for lengths that are products of 2, 3, 5 and 7,
// eight copies where Bluestein's algorithm serves another length. Half precision has powers of two only, as
// documented.
#include <cufft.h>
#include <cufftXt.h>

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "simulator/libraries/computation.h"
#include "simulator/libraries/data_type.h"
#include "simulator/libraries/handle_memory.h"

namespace {

namespace stand_in = spillway::stand_in;

struct Plan {
  cudaStream_t stream = nullptr;
  std::size_t work_bytes = 0;
  bool allocates = true;
  bool has_area = false;
  bool made = false;
  stand_in::HandleMemory own_area;  // where the library is to allocate it
};

const stand_in::Computation execute("cufftXtExec");

spillway::Mutex<spillway::LockOrder::kLibraryHandles> mutex;
std::map<cufftHandle, std::unique_ptr<Plan>>& plans() SPILLWAY_REQUIRES(mutex) {
  static auto* const all = new std::map<cufftHandle, std::unique_ptr<Plan>>;
  return *all;
}

// nullptr if there is none.
Plan* find(cufftHandle handle) {
  const spillway::Locked lock(mutex);
  const auto found = plans().find(handle);
  return found == plans().end() ? nullptr : found->second.get();
}

bool is_smooth(long long length) {
  for (const int factor : {2, 3, 5, 7}) {
    while (length > 1 && length % factor == 0) length /= factor;
  }
  return length == 1;
}

bool is_power_of_two(long long length) {
  return (length & (length - 1)) == 0;
}

std::size_t work_area(const std::vector<long long>& lengths, long long batch, cudaDataType execution) {
  std::size_t bytes = stand_in::element_bytes(execution) * static_cast<std::size_t>(batch);
  for (const long long length : lengths) bytes *= static_cast<std::size_t>(length);
  const bool smooth = std::all_of(lengths.begin(), lengths.end(), is_smooth);
  return smooth ? bytes : 8 * bytes;
}

cufftResult result_of(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return CUFFT_SUCCESS;
    case cudaErrorMemoryAllocation:
      return CUFFT_ALLOC_FAILED;
    default:
      return CUFFT_EXEC_FAILED;
  }
}

cufftResult make(Plan* plan, const std::vector<long long>& lengths, long long batch, cudaDataType execution,
                 size_t* work_bytes) {
  if (std::any_of(lengths.begin(), lengths.end(), [](long long length) { return length < 1; }))
    return CUFFT_INVALID_SIZE;
  const bool half = execution == CUDA_C_16F || execution == CUDA_C_16BF;
  if (half && !std::all_of(lengths.begin(), lengths.end(), is_power_of_two)) return CUFFT_INVALID_SIZE;
  if (stand_in::element_bytes(execution) == 0) return CUFFT_INVALID_TYPE;
  plan->work_bytes = *work_bytes = work_area(lengths, batch, execution);
  plan->made = true;
  return plan->allocates ? result_of(plan->own_area.charge("cufft", plan->work_bytes)) : CUFFT_SUCCESS;
}

// A plan by its type, which says the precision.
template <typename Length>
cufftResult make_typed(cufftHandle handle, int rank, const Length* lengths, cufftType type, long long batch,
                       size_t* work_bytes) {
  Plan* plan = find(handle);
  if (plan == nullptr) return CUFFT_INVALID_PLAN;
  if (rank < 1 || rank > 3 || lengths == nullptr || work_bytes == nullptr || batch < 1)
    return CUFFT_INVALID_VALUE;
  const bool twice = type == CUFFT_Z2Z || type == CUFFT_D2Z || type == CUFFT_Z2D;
  return make(plan, std::vector<long long>(lengths, lengths + rank), batch, twice ? CUDA_C_64F : CUDA_C_32F,
              work_bytes);
}

cufftResult run(cufftHandle handle, const void* input, const void* output) {
  const Plan* plan = find(handle);
  if (plan == nullptr || !plan->made) return CUFFT_INVALID_PLAN;
  const bool has_area = plan->allocates || plan->has_area || plan->work_bytes == 0;
  if (input == nullptr || output == nullptr || !has_area) return CUFFT_INVALID_VALUE;
  return result_of(execute.launch(plan->stream));
}

}  // namespace

extern "C" {

cufftResult cufftGetVersion(int* version) {
  if (version == nullptr) return CUFFT_INVALID_VALUE;
  *version = CUFFT_VERSION;
  return CUFFT_SUCCESS;
}

cufftResult cufftCreate(cufftHandle* handle) {
  if (handle == nullptr) return CUFFT_INVALID_VALUE;
  static cufftHandle last SPILLWAY_GUARDED_BY(mutex) = 0;
  if (cudaError_t error = stand_in::charge_code("cufft.library"); error != cudaSuccess)
    return result_of(error);
  const spillway::Locked lock(mutex);
  *handle = ++last;
  plans()[*handle] = std::make_unique<Plan>();
  return CUFFT_SUCCESS;
}

cufftResult cufftDestroy(cufftHandle handle) {
  const spillway::Locked lock(mutex);
  return plans().erase(handle) == 1 ? CUFFT_SUCCESS : CUFFT_INVALID_PLAN;
}

cufftResult cufftSetAutoAllocation(cufftHandle handle, int automatic) {
  Plan* plan = find(handle);
  if (plan == nullptr) return CUFFT_INVALID_PLAN;
  plan->allocates = automatic != 0;
  return CUFFT_SUCCESS;
}

cufftResult cufftSetStream(cufftHandle handle, cudaStream_t stream) {
  Plan* plan = find(handle);
  if (plan == nullptr) return CUFFT_INVALID_PLAN;
  plan->stream = stream;
  return CUFFT_SUCCESS;
}

cufftResult cufftSetWorkArea(cufftHandle handle, void* area) {
  Plan* plan = find(handle);
  if (plan == nullptr) return CUFFT_INVALID_PLAN;
  plan->has_area = area != nullptr;
  return CUFFT_SUCCESS;
}

cufftResult cufftXtMakePlanMany(cufftHandle handle, int rank, long long* lengths, long long*, long long,
                                long long, cudaDataType, long long*, long long, long long, cudaDataType,
                                long long batch, size_t* work_bytes, cudaDataType execution) {
  Plan* plan = find(handle);
  if (plan == nullptr) return CUFFT_INVALID_PLAN;
  if (rank < 1 || rank > 3 || lengths == nullptr || work_bytes == nullptr || batch < 1)
    return CUFFT_INVALID_VALUE;
  return make(plan, std::vector<long long>(lengths, lengths + rank), batch, execution, work_bytes);
}

cufftResult cufftMakePlanMany(cufftHandle handle, int rank, int* lengths, int*, int, int, int*, int, int,
                              cufftType type, int batch, size_t* work_bytes) {
  return make_typed(handle, rank, lengths, type, batch, work_bytes);
}

cufftResult cufftMakePlanMany64(cufftHandle handle, int rank, long long* lengths, long long*, long long,
                                long long, long long*, long long, long long, cufftType type, long long batch,
                                size_t* work_bytes) {
  return make_typed(handle, rank, lengths, type, batch, work_bytes);
}

cufftResult cufftXtExec(cufftHandle handle, void* input, void* output, int) {
  return run(handle, input, output);
}

cufftResult cufftExecC2C(cufftHandle handle, cufftComplex* input, cufftComplex* output, int) {
  return run(handle, input, output);
}

cufftResult cufftExecR2C(cufftHandle handle, cufftReal* input, cufftComplex* output) {
  return run(handle, input, output);
}

cufftResult cufftExecC2R(cufftHandle handle, cufftComplex* input, cufftReal* output) {
  return run(handle, input, output);
}

cufftResult cufftExecZ2Z(cufftHandle handle, cufftDoubleComplex* input, cufftDoubleComplex* output, int) {
  return run(handle, input, output);
}

cufftResult cufftExecD2Z(cufftHandle handle, cufftDoubleReal* input, cufftDoubleComplex* output) {
  return run(handle, input, output);
}

cufftResult cufftExecZ2D(cufftHandle handle, cufftDoubleComplex* input, cufftDoubleReal* output) {
  return run(handle, input, output);
}
}
