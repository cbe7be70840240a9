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

cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(cudnnHandle_t, const cudnnTensorDescriptor_t x,
                                                      const cudnnFilterDescriptor_t w,
                                                      const cudnnConvolutionDescriptor_t convolution,
                                                      const cudnnTensorDescriptor_t y,
                                                      cudnnConvolutionFwdAlgo_t, size_t* bytes) {
  return size(ConvolutionKind::kForward, x, w, y, convolution, bytes);
}

cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(cudnnHandle_t, const cudnnFilterDescriptor_t w,
                                                           const cudnnTensorDescriptor_t y,
                                                           const cudnnConvolutionDescriptor_t convolution,
                                                           const cudnnTensorDescriptor_t x,
                                                           cudnnConvolutionBwdDataAlgo_t, size_t* bytes) {
  return size(ConvolutionKind::kBackwardData, x, w, y, convolution, bytes);
}

cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(cudnnHandle_t, const cudnnTensorDescriptor_t x,
                                                             const cudnnTensorDescriptor_t y,
                                                             const cudnnConvolutionDescriptor_t convolution,
                                                             const cudnnFilterDescriptor_t w,
                                                             cudnnConvolutionBwdFilterAlgo_t, size_t* bytes) {
  return size(ConvolutionKind::kBackwardFilter, x, w, y, convolution, bytes);
}

cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(cudnnHandle_t, const cudnnTensorDescriptor_t x,
                                                     const cudnnFilterDescriptor_t w,
                                                     const cudnnConvolutionDescriptor_t convolution,
                                                     const cudnnTensorDescriptor_t y, const int requested,
                                                     int* returned, cudnnConvolutionFwdAlgoPerf_t* results) {
  return choose(ConvolutionKind::kForward, x, w, y, convolution, requested, returned, results);
}

cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(cudnnHandle_t, const cudnnFilterDescriptor_t w,
                                                          const cudnnTensorDescriptor_t y,
                                                          const cudnnConvolutionDescriptor_t convolution,
                                                          const cudnnTensorDescriptor_t x,
                                                          const int requested, int* returned,
                                                          cudnnConvolutionBwdDataAlgoPerf_t* results) {
  return choose(ConvolutionKind::kBackwardData, x, w, y, convolution, requested, returned, results);
}

cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(cudnnHandle_t, const cudnnTensorDescriptor_t x,
                                                            const cudnnTensorDescriptor_t y,
                                                            const cudnnConvolutionDescriptor_t convolution,
                                                            const cudnnFilterDescriptor_t w,
                                                            const int requested, int* returned,
                                                            cudnnConvolutionBwdFilterAlgoPerf_t* results) {
  return choose(ConvolutionKind::kBackwardFilter, x, w, y, convolution, requested, returned, results);
}

cudnnStatus_t cudnnFindConvolutionForwardAlgorithmEx(
    cudnnHandle_t, const cudnnTensorDescriptor_t x, const void*, const cudnnFilterDescriptor_t w, const void*,
    const cudnnConvolutionDescriptor_t convolution, const cudnnTensorDescriptor_t y, void*,
    const int requested, int* returned, cudnnConvolutionFwdAlgoPerf_t* results, void*, size_t) {
  return choose(ConvolutionKind::kForward, x, w, y, convolution, requested, returned, results);
}

cudnnStatus_t cudnnFindConvolutionBackwardDataAlgorithmEx(
    cudnnHandle_t, const cudnnFilterDescriptor_t w, const void*, const cudnnTensorDescriptor_t y, const void*,
    const cudnnConvolutionDescriptor_t convolution, const cudnnTensorDescriptor_t x, void*,
    const int requested, int* returned, cudnnConvolutionBwdDataAlgoPerf_t* results, void*, size_t) {
  return choose(ConvolutionKind::kBackwardData, x, w, y, convolution, requested, returned, results);
}

cudnnStatus_t cudnnFindConvolutionBackwardFilterAlgorithmEx(
    cudnnHandle_t, const cudnnTensorDescriptor_t x, const void*, const cudnnTensorDescriptor_t y, const void*,
    const cudnnConvolutionDescriptor_t convolution, const cudnnFilterDescriptor_t w, void*,
    const int requested, int* returned, cudnnConvolutionBwdFilterAlgoPerf_t* results, void*, size_t) {
  return choose(ConvolutionKind::kBackwardFilter, x, w, y, convolution, requested, returned, results);
}
}
