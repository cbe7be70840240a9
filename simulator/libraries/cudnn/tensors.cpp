#include "simulator/libraries/cudnn/tensors.h"

#include <algorithm>

#include "simulator/libraries/cudnn/handle.h"

namespace spillway::cudnn {
namespace {

// A filter's and a contiguous tensor's strides.
std::vector<int64_t> packed_strides(const std::vector<int64_t>& dims, cudnnTensorFormat_t format) {
  std::vector<int64_t> strides(dims.size(), 1);
  int64_t stride = 1;
  if (format == CUDNN_TENSOR_NHWC && dims.size() > 1) stride = dims[1];
  for (size_t i = dims.size(); i-- > 0;) {
    if (format == CUDNN_TENSOR_NHWC && i == 1) continue;
    strides[i] = stride;
    stride *= dims[i];
  }
  return strides;
}

bool sensible(int count, const int* dims) {
  return count > 0 && count <= CUDNN_DIM_MAX && dims != nullptr &&
         std::all_of(dims, dims + count, [](int dim) { return dim > 0; });
}

void copy_out(const std::vector<int64_t>& from, int requested, int* to) {
  if (to == nullptr) return;
  for (int i = 0; i < requested && i < static_cast<int>(from.size()); ++i) to[i] = static_cast<int>(from[i]);
}

}  // namespace

int64_t Tensor::elements() const {
  int64_t count = dims.empty() ? 0 : 1;
  for (const int64_t dim : dims) count *= dim;
  return count;
}

bool Tensor::channels_last() const {
  return strides.size() > 2 && dims[1] > 1 && strides[1] == 1;
}

}  // namespace spillway::cudnn

using namespace spillway::cudnn;

extern "C" {

cudnnStatus_t cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t tensor, cudnnDataType_t type, int count,
                                         const int dims[], const int strides[]) {
  if (tensor == nullptr || strides == nullptr) return kInvalid;
  if (!sensible(count, dims))
    return fail(CUDNN_STATUS_BAD_PARAM, "a tensor's dimensions are 1 to 8, all positive");
  tensor->type = type;
  tensor->dims.assign(dims, dims + count);
  tensor->strides.assign(strides, strides + count);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetTensorNdDescriptor(const cudnnTensorDescriptor_t tensor, int requested,
                                         cudnnDataType_t* type, int* count, int dims[], int strides[]) {
  if (tensor == nullptr || type == nullptr || count == nullptr) return kInvalid;
  *type = tensor->type;
  *count = static_cast<int>(tensor->dims.size());
  copy_out(tensor->dims, requested, dims);
  copy_out(tensor->strides, requested, strides);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetFilterNdDescriptor(cudnnFilterDescriptor_t filter, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int count, const int dims[]) {
  if (filter == nullptr) return kInvalid;
  if (!sensible(count, dims))
    return fail(CUDNN_STATUS_BAD_PARAM, "a filter's dimensions are 1 to 8, all positive");
  filter->type = type;
  filter->format = format;
  filter->dims.assign(dims, dims + count);
  filter->strides = packed_strides(filter->dims, format);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetFilterNdDescriptor(const cudnnFilterDescriptor_t filter, int requested,
                                         cudnnDataType_t* type, cudnnTensorFormat_t* format, int* count,
                                         int dims[]) {
  if (filter == nullptr || type == nullptr || format == nullptr || count == nullptr) return kInvalid;
  *type = filter->type;
  *format = filter->format;
  *count = static_cast<int>(filter->dims.size());
  copy_out(filter->dims, requested, dims);
  return CUDNN_STATUS_SUCCESS;
}
}
