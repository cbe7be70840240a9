// What the descriptors of cuDNN's older interface hold.
//
// Thread-safety: none. Ownership: values. Units: elements, but for `bytes`.
#pragma once
#include <cudnn.h>

#include <cstdint>
#include <vector>

namespace spillway::cudnn {

constexpr int64_t element_bytes(cudnnDataType_t type) {
  switch (type) {
    case CUDNN_DATA_DOUBLE:
    case CUDNN_DATA_INT64:
    case CUDNN_DATA_COMPLEX_FP32:
      return 8;
    case CUDNN_DATA_COMPLEX_FP64:
      return 16;
    case CUDNN_DATA_HALF:
    case CUDNN_DATA_BFLOAT16:
      return 2;
    case CUDNN_DATA_INT8:
    case CUDNN_DATA_UINT8:
    case CUDNN_DATA_BOOLEAN:
    case CUDNN_DATA_FP8_E4M3:
    case CUDNN_DATA_FP8_E5M2:
    case CUDNN_DATA_FP8_E8M0:
      return 1;
    default:
      return 4;
  }
}

struct Tensor {
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  std::vector<int64_t> dims, strides;

  int64_t elements() const;
  int64_t bytes() const { return elements() * element_bytes(type); }
  // Channels, the second dimension, are what lies closest together.
  bool channels_last() const;
};

struct Convolution {
  std::vector<int64_t> padding, stride, dilation;
  int64_t groups = 1;
  cudnnMathType_t math = CUDNN_DEFAULT_MATH;
};

}  // namespace spillway::cudnn

struct cudnnTensorStruct : spillway::cudnn::Tensor {};

struct cudnnFilterStruct : spillway::cudnn::Tensor {
  cudnnTensorFormat_t format = CUDNN_TENSOR_NCHW;
};

struct cudnnConvolutionStruct : spillway::cudnn::Convolution {};

struct cudnnDropoutStruct {
  float probability = 0;
};

struct cudnnRNNDataStruct {
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  int longest = 0, batch = 0, width = 0;
  int64_t steps = 0;  // all sequences' together
};

// What these say chooses among kernels and changes no memory.
struct cudnnActivationStruct {};
struct cudnnCTCLossStruct {};
struct cudnnPoolingStruct {};
struct cudnnSpatialTransformerStruct {};
