// How much scratch memory cuDNN asks its caller for. All of it is MODELLED: NVIDIA does not publish what the
// heuristics choose, and nothing here has been measured on a GPU yet. One formula an operation:
//
//   operation               | workspace                                            | why
//   convolution, main       | NHWC, or no tensor cores: 0; backward filter: the    | tensor-core kernels read
//   NHWC: engine                  | filter in float. NCHW with tensor cores: x + w + y,  | NCHW is copied
//   first; split-k
//                           | each in full                                         | partial sums are kept in
//                           float
//   ..., groups > 1         | 0                                                    | direct kernels
//   ..., the other engines  | 0                                                    | implicit GEMM
//   attention, forward      | 0                                                    | one fused kernel
//   attention, backward     | b h s_q (d + 1) floats for an operation of its own;  | dQ is summed in float,
//   with a
//                           | for a graph of parts 0: the frontend adds its own    | row sum of dO O
//   batch norm, NHWC        | 2 C floats a multiprocessor; NCHW: 0                 | partial sums of the
//   persistent
//                           |                                                      | kernel
//   recurrent layers        | work: T B H D floats or halves, a gate each          | the products of one
//   layer
//                           | reserve: L T B H D for gates, cell and output, and a | what backward reads
//                           | byte an element for each dropout between layers      |
//   CTC loss                | T B 4 floats + alphas T B (2 L + 1) floats           | labels of at most 256
//
// The states of dropout are exact: a cuRAND XORWOW state, 48 bytes, for every thread that the card can hold.
//
// Thread-safety: functions of their arguments and, the last two, of the current device. Units: bytes.
#pragma once
#include <cstdint>

#include "simulator/libraries/cudnn/tensors.h"

namespace spillway::cudnn {

enum class ConvolutionKind { kForward, kBackwardData, kBackwardFilter };

// Whether cuDNN's main engine uses tensor cores for `type` on a card of capability `major`.
bool uses_tensor_cores(cudnnDataType_t type, int major);

int64_t convolution_workspace(ConvolutionKind kind, const Tensor& x, const Tensor& w, const Tensor& y,
                              int major);
int64_t attention_backward_workspace(const Tensor& query);
int64_t batch_norm_workspace(const Tensor& x, int multiprocessors);

struct RecurrentShape {
  cudnnRNNMode_t cell = CUDNN_LSTM;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  int64_t input = 0, hidden = 0, projected = 0, layers = 0, directions = 1;
  bool dropout = false;
};
int64_t gates(cudnnRNNMode_t cell);
int64_t recurrent_workspace(const RecurrentShape& shape, int64_t longest, int64_t batch);
int64_t recurrent_reserve(const RecurrentShape& shape, int64_t longest, int64_t batch);

int64_t ctc_workspace(const Tensor& probabilities);
int64_t dropout_states(int multiprocessors, int threads_of_multiprocessor);

// Of the current device.
int multiprocessors();
int threads_of_multiprocessor();

}  // namespace spillway::cudnn
