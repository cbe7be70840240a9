// Recurrent layers: where their weights lie in the weight space, and what memory they need. The weight space
// is packed: for each pseudo-layer (layer and direction) the matrices of all gates that multiply the input,
// then those that multiply the state, then the projection; behind all matrices come the biases in the same
// order.
#include "simulator/libraries/cudnn/handle.h"

struct cudnnRNNStruct : spillway::cudnn::RecurrentShape {
  cudnnRNNBiasMode_t bias = CUDNN_RNN_DOUBLE_BIAS;
};

namespace spillway::cudnn {
namespace {

using Layer = cudnnRNNStruct;

int64_t output_width(const Layer& rnn) {
  return rnn.projected > 0 ? rnn.projected : rnn.hidden;
}

int64_t input_width(const Layer& rnn, int64_t pseudo_layer) {
  return pseudo_layer < rnn.directions ? rnn.input : output_width(rnn) * rnn.directions;
}

bool has_projection(const Layer& rnn) {
  return rnn.projected > 0 && rnn.projected != rnn.hidden;
}

int64_t projection_elements(const Layer& rnn) {
  return has_projection(rnn) ? rnn.projected * rnn.hidden : 0;
}

int64_t matrix_elements(const Layer& rnn, int64_t pseudo_layer) {
  const int64_t columns = input_width(rnn, pseudo_layer) + output_width(rnn);
  return gates(rnn.cell) * rnn.hidden * columns + projection_elements(rnn);
}

int64_t matrices_before(const Layer& rnn, int64_t pseudo_layer) {
  int64_t elements = 0;
  for (int64_t i = 0; i < pseudo_layer; ++i) elements += matrix_elements(rnn, i);
  return elements;
}

int64_t biases_of_a_gate(const Layer& rnn) {
  if (rnn.bias == CUDNN_RNN_NO_BIAS) return 0;
  return rnn.bias == CUDNN_RNN_DOUBLE_BIAS ? 2 : 1;
}

int64_t bias_elements(const Layer& rnn) {
  return biases_of_a_gate(rnn) * gates(rnn.cell) * rnn.hidden;
}

int64_t pseudo_layers(const Layer& rnn) {
  return rnn.layers * rnn.directions;
}

struct Part {
  int64_t offset = 0, rows = 0, columns = 0;  // in elements; no rows: there is none
};

Part matrix(const Layer& rnn, int64_t pseudo_layer, int64_t linear) {
  const int64_t count = gates(rnn.cell);
  const int64_t input = rnn.hidden * input_width(rnn, pseudo_layer);
  const int64_t state = rnn.hidden * output_width(rnn);
  const int64_t start = matrices_before(rnn, pseudo_layer);
  if (linear < count) return {start + linear * input, rnn.hidden, input_width(rnn, pseudo_layer)};
  if (linear < 2 * count) {
    return {start + count * input + (linear - count) * state, rnn.hidden, output_width(rnn)};
  }
  if (!has_projection(rnn)) return {};
  return {start + count * (input + state), rnn.projected, rnn.hidden};
}

Part bias(const Layer& rnn, int64_t pseudo_layer, int64_t linear) {
  const int64_t count = gates(rnn.cell);
  const bool of_state = linear >= count;
  const bool absent = linear >= 2 * count || rnn.bias == CUDNN_RNN_NO_BIAS ||
                      (rnn.bias == CUDNN_RNN_SINGLE_INP_BIAS && of_state) ||
                      (rnn.bias == CUDNN_RNN_SINGLE_REC_BIAS && !of_state);
  if (absent) return {};
  const int64_t index = rnn.bias == CUDNN_RNN_SINGLE_REC_BIAS ? linear - count : linear;
  const int64_t start = matrices_before(rnn, pseudo_layers(rnn)) + pseudo_layer * bias_elements(rnn);
  return {start + index * rnn.hidden, rnn.hidden, 1};
}

void describe(const Part& part, const Layer& rnn, const void* space, cudnnTensorDescriptor_t tensor,
              void** address) {
  if (address != nullptr) {
    *address = part.rows == 0 ? nullptr
                              : const_cast<char*>(static_cast<const char*>(space)) +
                                    part.offset * element_bytes(rnn.type);
  }
  if (tensor == nullptr) return;
  tensor->type = rnn.type;
  tensor->dims = part.rows == 0 ? std::vector<int64_t>{} : std::vector<int64_t>{1, part.rows, part.columns};
  tensor->strides = part.rows == 0 ? std::vector<int64_t>{}
                                   : std::vector<int64_t>{part.rows * part.columns, part.columns, 1};
}

int64_t space_bytes(const Layer& rnn) {
  const int64_t layers = pseudo_layers(rnn);
  return (matrices_before(rnn, layers) + layers * bias_elements(rnn)) * element_bytes(rnn.type);
}

}  // namespace
}  // namespace spillway::cudnn

using namespace spillway::cudnn;

extern "C" {

cudnnStatus_t cudnnCreateRNNDescriptor(cudnnRNNDescriptor_t* rnn) {
  return library.create(rnn);
}

cudnnStatus_t cudnnDestroyRNNDescriptor(cudnnRNNDescriptor_t rnn) {
  return library.destroy(rnn);
}

cudnnStatus_t cudnnSetRNNDescriptor_v8(cudnnRNNDescriptor_t rnn, cudnnRNNAlgo_t, cudnnRNNMode_t cell,
                                       cudnnRNNBiasMode_t bias, cudnnDirectionMode_t direction,
                                       cudnnRNNInputMode_t, cudnnDataType_t type, cudnnDataType_t,
                                       cudnnMathType_t, int32_t input, int32_t hidden, int32_t projected,
                                       int32_t layers, cudnnDropoutDescriptor_t dropout, uint32_t) {
  if (rnn == nullptr) return kInvalid;
  if (input < 1 || hidden < 1 || layers < 1 || projected < 0 || projected > hidden) {
    return fail(CUDNN_STATUS_BAD_PARAM,
                "a recurrent layer's sizes are positive, and its projection no wider than it");
  }
  rnn->cell = cell;
  rnn->bias = bias;
  rnn->type = type;
  rnn->directions = direction == CUDNN_BIDIRECTIONAL ? 2 : 1;
  rnn->input = input;
  rnn->hidden = hidden;
  rnn->projected = projected;
  rnn->layers = layers;
  rnn->dropout = dropout != nullptr && dropout->probability > 0 && layers > 1;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetRNNDataDescriptor(cudnnRNNDataDescriptor_t data, cudnnDataType_t type,
                                        cudnnRNNDataLayout_t, int longest, int batch, int width,
                                        const int lengths[], void*) {
  if (data == nullptr || lengths == nullptr) return kInvalid;
  if (longest < 1 || batch < 1 || width < 1) {
    return fail(CUDNN_STATUS_BAD_PARAM, "sequences have positive lengths, numbers and widths");
  }
  int64_t steps = 0;
  for (int i = 0; i < batch; ++i) {
    if (lengths[i] < 0 || lengths[i] > longest) {
      return fail(CUDNN_STATUS_BAD_PARAM, "a sequence is longer than the longest");
    }
    steps += lengths[i];
  }
  data->type = type;
  data->longest = longest;
  data->batch = batch;
  data->width = width;
  data->steps = steps;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetRNNWeightSpaceSize(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, size_t* bytes) {
  if (handle == nullptr || rnn == nullptr || bytes == nullptr) return kInvalid;
  *bytes = static_cast<size_t>(space_bytes(*rnn));
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetRNNWeightParams(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, int32_t pseudo_layer,
                                      size_t bytes, const void* space, int32_t linear,
                                      cudnnTensorDescriptor_t matrix_tensor, void** matrix_address,
                                      cudnnTensorDescriptor_t bias_tensor, void** bias_address) {
  if (handle == nullptr || rnn == nullptr) return kInvalid;
  const int64_t linears = 2 * gates(rnn->cell) + (has_projection(*rnn) ? 1 : 0);
  if (pseudo_layer < 0 || pseudo_layer >= pseudo_layers(*rnn) || linear < 0 || linear >= linears) {
    return fail(CUDNN_STATUS_BAD_PARAM, "there is no such layer or gate");
  }
  if (bytes < static_cast<size_t>(space_bytes(*rnn))) {
    return fail(CUDNN_STATUS_BAD_PARAM, "the weight space is too small");
  }
  describe(matrix(*rnn, pseudo_layer, linear), *rnn, space, matrix_tensor, matrix_address);
  describe(bias(*rnn, pseudo_layer, linear), *rnn, space, bias_tensor, bias_address);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetRNNTempSpaceSizes(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn,
                                        cudnnForwardMode_t mode, cudnnRNNDataDescriptor_t data,
                                        size_t* workspace, size_t* reserve) {
  if (handle == nullptr || rnn == nullptr || data == nullptr) return kInvalid;
  if (workspace != nullptr) *workspace = recurrent_workspace(*rnn, data->longest, data->batch);
  if (reserve != nullptr) {
    *reserve = mode == CUDNN_FWD_MODE_TRAINING ? recurrent_reserve(*rnn, data->longest, data->batch) : 0;
  }
  return CUDNN_STATUS_SUCCESS;
}
}
