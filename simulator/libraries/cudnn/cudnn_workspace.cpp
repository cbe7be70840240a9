#include "simulator/libraries/cudnn/cudnn_workspace.h"

#include "simulator/libraries/computation.h"

namespace spillway::cudnn {
namespace {

constexpr int64_t kFloat = sizeof(float);

bool is_half(cudnnDataType_t type) {
  return type == CUDNN_DATA_HALF || type == CUDNN_DATA_BFLOAT16;
}

}  // namespace

bool uses_tensor_cores(cudnnDataType_t type, int major) {
  return (is_half(type) && major >= 7) || (type == CUDNN_DATA_FLOAT && major >= 8);
}

int64_t convolution_workspace(ConvolutionKind kind, const Tensor& x, const Tensor& w, const Tensor& y,
                              int major) {
  const bool grouped = x.dims.size() > 1 && w.dims.size() > 1 && x.dims[1] != w.dims[1];
  if (grouped || !uses_tensor_cores(x.type, major)) return 0;
  const int64_t partial_sums =
      kind == ConvolutionKind::kBackwardFilter && is_half(x.type) ? w.elements() * kFloat : 0;
  const bool packed_channels = x.channels_last() || y.channels_last();
  return packed_channels ? partial_sums : partial_sums + x.bytes() + w.bytes() + y.bytes();
}

int64_t attention_backward_workspace(const Tensor& query) {
  if (query.dims.size() < 4 || query.dims[3] == 0) return 0;
  return query.elements() / query.dims[3] * (query.dims[3] + 1) * kFloat;
}

int64_t batch_norm_workspace(const Tensor& x, int multiprocessors) {
  if (!x.channels_last()) return 0;
  return 2 * x.dims[1] * kFloat * multiprocessors;
}

int64_t gates(cudnnRNNMode_t cell) {
  switch (cell) {
    case CUDNN_LSTM:
      return 4;
    case CUDNN_GRU:
      return 3;
    default:
      return 1;
  }
}

int64_t recurrent_workspace(const RecurrentShape& shape, int64_t longest, int64_t batch) {
  return longest * batch * shape.hidden * shape.directions * gates(shape.cell) * element_bytes(shape.type);
}

int64_t recurrent_reserve(const RecurrentShape& shape, int64_t longest, int64_t batch) {
  const int64_t outputs = longest * batch * shape.hidden * shape.directions;
  const int64_t cell = shape.cell == CUDNN_LSTM ? 1 : 0;
  const int64_t kept = shape.layers * outputs * (gates(shape.cell) + cell + 1) * element_bytes(shape.type);
  return kept + (shape.dropout ? (shape.layers - 1) * outputs : 0);
}

int64_t ctc_workspace(const Tensor& probabilities) {
  constexpr int64_t kLabels = 256;
  if (probabilities.dims.size() < 2) return 0;
  return probabilities.dims[0] * probabilities.dims[1] * (4 + 2 * kLabels + 1) * kFloat;
}

int64_t dropout_states(int multiprocessors, int threads_of_multiprocessor) {
  constexpr int64_t kStateBytes = 48;
  return kStateBytes * multiprocessors * threads_of_multiprocessor;
}

int multiprocessors() {
  return stand_in::device_attribute(cudaDevAttrMultiProcessorCount);
}

int threads_of_multiprocessor() {
  return stand_in::device_attribute(cudaDevAttrMaxThreadsPerMultiProcessor);
}

}  // namespace spillway::cudnn
