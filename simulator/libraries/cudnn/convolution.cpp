// Convolutions in the interface before the backend's: what PyTorch calls with TORCH_CUDNN_V8_API_DISABLED=1.
#include <algorithm>

#include "simulator/libraries/cudnn/handle.h"

namespace spillway::cudnn {
namespace {

bool is_whole(const Tensor* x, const Tensor* w, const Tensor* y, const Convolution* convolution) {
  return x != nullptr && w != nullptr && y != nullptr && convolution != nullptr && !x->dims.empty() &&
         !w->dims.empty() && !y->dims.empty();
}

int64_t workspace(ConvolutionKind kind, const Tensor* x, const Tensor* w, const Tensor* y) {
  return convolution_workspace(kind, *x, *w, *y, stand_in::capability_major());
}

cudnnStatus_t size(ConvolutionKind kind, const Tensor* x, const Tensor* w, const Tensor* y,
                   const Convolution* convolution, size_t* bytes) {
  if (!is_whole(x, w, y, convolution) || bytes == nullptr) return kInvalid;
  *bytes = static_cast<size_t>(workspace(kind, x, w, y));
  return kSuccess;
}

// One algorithm, number 1: the main engine of the backend interface.
template <class Performance>
cudnnStatus_t choose(ConvolutionKind kind, const Tensor* x, const Tensor* w, const Tensor* y,
                     const Convolution* convolution, int requested, int* returned, Performance* results) {
  if (!is_whole(x, w, y, convolution) || returned == nullptr || results == nullptr) return kInvalid;
  if (requested < 1) return fail(CUDNN_STATUS_BAD_PARAM, "at least one algorithm must be asked for");
  results[0] = {};
  results[0].algo = static_cast<decltype(results[0].algo)>(1);
  results[0].status = CUDNN_STATUS_SUCCESS;
  results[0].memory = static_cast<size_t>(workspace(kind, x, w, y));
  results[0].determinism = CUDNN_DETERMINISTIC;
  results[0].mathType = convolution->math;
  *returned = 1;
  return kSuccess;
}

}  // namespace
}  // namespace spillway::cudnn

using namespace spillway::cudnn;

extern "C" {

cudnnStatus_t cudnnSetConvolutionNdDescriptor(cudnnConvolutionDescriptor_t convolution, int count,
                                              const int padding[], const int stride[], const int dilation[],
                                              cudnnConvolutionMode_t, cudnnDataType_t) {
  if (convolution == nullptr || padding == nullptr || stride == nullptr || dilation == nullptr)
    return kInvalid;
  const auto positive = [count](const int* values) {
    return std::all_of(values, values + count, [](int value) { return value > 0; });
  };
  if (count < 1 || count > CUDNN_DIM_MAX - 2 || !positive(stride) || !positive(dilation)) {
    return fail(CUDNN_STATUS_BAD_PARAM,
                "a convolution has 1 to 6 dimensions with positive strides and dilations");
  }
  convolution->padding.assign(padding, padding + count);
  convolution->stride.assign(stride, stride + count);
  convolution->dilation.assign(dilation, dilation + count);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t convolution, int groups) {
  if (convolution == nullptr) return kInvalid;
  if (groups < 1) return fail(CUDNN_STATUS_BAD_PARAM, "a convolution has at least one group");
  convolution->groups = groups;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t convolution, cudnnMathType_t math) {
  if (convolution == nullptr) return kInvalid;
  convolution->math = math;
  return CUDNN_STATUS_SUCCESS;
}

// The three directions differ in nothing but their names and the order of their tensors.
#define SPILLWAY_CUDNN_CONVOLUTION(Name, Short, First, Second, Third)                                   \
  cudnnStatus_t cudnnGetConvolution##Name##WorkspaceSize(                                               \
      cudnnHandle_t, First, Second, const cudnnConvolutionDescriptor_t convolution, Third,              \
      cudnnConvolution##Short##Algo_t, size_t* bytes) {                                                 \
    return size(ConvolutionKind::k##Name, x, w, y, convolution, bytes);                                 \
  }                                                                                                     \
  cudnnStatus_t cudnnGetConvolution##Name##Algorithm_v7(                                                \
      cudnnHandle_t, First, Second, const cudnnConvolutionDescriptor_t convolution, Third,              \
      const int requested, int* returned, cudnnConvolution##Short##AlgoPerf_t* results) {               \
    return choose(ConvolutionKind::k##Name, x, w, y, convolution, requested, returned, results);        \
  }                                                                                                     \
  cudnnStatus_t cudnnFindConvolution##Name##AlgorithmEx(                                                \
      cudnnHandle_t, First, const void*, Second, const void*,                                           \
      const cudnnConvolutionDescriptor_t convolution, Third, void*, const int requested, int* returned, \
      cudnnConvolution##Short##AlgoPerf_t* results, void*, size_t) {                                    \
    return choose(ConvolutionKind::k##Name, x, w, y, convolution, requested, returned, results);        \
  }

SPILLWAY_CUDNN_CONVOLUTION(Forward, Fwd, const cudnnTensorDescriptor_t x, const cudnnFilterDescriptor_t w,
                           const cudnnTensorDescriptor_t y)
SPILLWAY_CUDNN_CONVOLUTION(BackwardData, BwdData, const cudnnFilterDescriptor_t w,
                           const cudnnTensorDescriptor_t y, const cudnnTensorDescriptor_t x)
SPILLWAY_CUDNN_CONVOLUTION(BackwardFilter, BwdFilter, const cudnnTensorDescriptor_t x,
                           const cudnnTensorDescriptor_t y, const cudnnFilterDescriptor_t w)
#undef SPILLWAY_CUDNN_CONVOLUTION
}
