#include "simulator/libraries/cudnn/graph/operation_graph.h"

#include <algorithm>
#include <set>

#include "simulator/libraries/cudnn/handle.h"

namespace spillway::cudnn {
namespace {

const std::vector<Shared>& operations(const State& graph) {
  return graph.find(CUDNN_ATTR_OPERATIONGRAPH_OPS)->children;
}

int64_t count_of(const State& graph, cudnnBackendDescriptorType_t type) {
  const std::vector<Shared>& all = operations(graph);
  return std::count_if(all.begin(), all.end(),
                       [type](const Shared& operation) { return operation->type == type; });
}

cudnnDataType_t data_type(const State& tensor) {
  return static_cast<cudnnDataType_t>(tensor.enumerator(CUDNN_ATTR_TENSOR_DATA_TYPE));
}

Tensor tensor(const State& state) {
  return {data_type(state), state.integers(CUDNN_ATTR_TENSOR_DIMENSIONS),
          state.integers(CUDNN_ATTR_TENSOR_STRIDES)};
}

struct ConvolutionOperation {
  ConvolutionKind kind;
  Tensor x, w, y;
};

bool read_convolution(const State& operation, ConvolutionOperation* out) {
  const auto read = [&](ConvolutionKind kind, cudnnBackendAttributeName_t x, cudnnBackendAttributeName_t w,
                        cudnnBackendAttributeName_t y) {
    *out = {kind, tensor(*operation.child(x)), tensor(*operation.child(w)), tensor(*operation.child(y))};
    return true;
  };
  switch (operation.type) {
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
      return read(ConvolutionKind::kForward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y);
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
      return read(ConvolutionKind::kBackwardData, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY);
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
      return read(ConvolutionKind::kBackwardFilter, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY);
    default:
      return false;
  }
}

bool find_convolution(const State& graph, ConvolutionOperation* out) {
  const std::vector<Shared>& all = operations(graph);
  return std::any_of(all.begin(), all.end(),
                     [out](const Shared& operation) { return read_convolution(*operation, out); });
}

cudnnStatus_t check_convolution(const ConvolutionOperation& convolution, int major) {
  switch (convolution.x.type) {
    case CUDNN_DATA_FLOAT:
    case CUDNN_DATA_DOUBLE:
    case CUDNN_DATA_HALF:
    case CUDNN_DATA_INT8:
      break;
    case CUDNN_DATA_BFLOAT16:
      if (major >= 8) break;
      return fail(CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH,
                  "bfloat16 convolutions need compute capability 8.0");
    case CUDNN_DATA_FP8_E4M3:
    case CUDNN_DATA_FP8_E5M2:
      if (major >= 9) break;
      return fail(CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH, "FP8 convolutions need compute capability 9.0");
    default:
      return fail(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE, "there is no convolution of this data type");
  }
  const size_t dimensions = convolution.x.dims.size();
  const bool fits = dimensions >= 3 && convolution.w.dims.size() == dimensions &&
                    convolution.y.dims.size() == dimensions &&
                    convolution.x.dims[1] % convolution.w.dims[1] == 0;
  return fits ? kSuccess
              : fail(CUDNN_STATUS_NOT_SUPPORTED_SHAPE,
                     "the shapes of the convolution's tensors do not fit together");
}

bool is_attention(const State& graph) {
  return count_of(graph, CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR) > 0 ||
         count_of(graph, CUDNN_BACKEND_OPERATION_SDPA_BWD_DESCRIPTOR) > 0 ||
         count_of(graph, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR) > 1;
}

// The first operation on a product or an attention says what the whole works with.
const State* attention_query(const State& graph) {
  for (const Shared& operation : operations(graph)) {
    for (const auto name : {CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC, CUDNN_ATTR_OPERATION_SDPA_BWD_QDESC,
                            CUDNN_ATTR_OPERATION_MATMUL_ADESC}) {
      if (const State* query = operation->child(name)) return query;
    }
  }
  return nullptr;
}

cudnnStatus_t check_attention(const State& graph, int major) {
  if (major < 8)
    return fail(CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH, "attention needs compute capability 8.0");
  const State* query = attention_query(graph);
  if (query == nullptr) return fail(CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN, "the attention has no query");
  switch (data_type(*query)) {
    case CUDNN_DATA_HALF:
    case CUDNN_DATA_BFLOAT16:
      return kSuccess;
    case CUDNN_DATA_FP8_E4M3:
    case CUDNN_DATA_FP8_E5M2:
      if (major >= 9) return kSuccess;
      return fail(CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH, "FP8 attention needs compute capability 9.0");
    default:
      return fail(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE, "attention is of half precision, bfloat16 or FP8");
  }
}

cudnnStatus_t check_graph(const State& graph) {
  const int major = stand_in::capability_major();
  ConvolutionOperation convolution{};
  if (find_convolution(graph, &convolution)) return check_convolution(convolution, major);
  return is_attention(graph) ? check_attention(graph, major) : kSuccess;
}

bool is_backward_convolution(const State& graph) {
  ConvolutionOperation convolution{};
  return find_convolution(graph, &convolution) && convolution.kind != ConvolutionKind::kForward;
}

bool is_outside(const State& state) {
  return state.type == CUDNN_BACKEND_TENSOR_DESCRIPTOR && !state.flag(CUDNN_ATTR_TENSOR_IS_VIRTUAL) &&
         state.find(CUDNN_ATTR_TENSOR_CONSTANT_VALUE) == nullptr;
}

// An attention may hold its softmax and a graph of its mask; a ragged tensor holds that of its offsets.
void collect_outside(const State& state, std::set<int64_t>* ids) {
  if (is_outside(state)) ids->insert(state.integer(CUDNN_ATTR_TENSOR_UNIQUE_ID));
  for (const auto& [name, attribute] : state.attributes) {
    for (const Shared& child : attribute.children) collect_outside(*child, ids);
  }
}

}  // namespace

cudnnStatus_t engines_for(const State& graph, cudnnBackendHeurMode_t mode, std::vector<int64_t>* engines) {
  if (const cudnnStatus_t status = check_graph(graph); status != kSuccess) return status;
  ConvolutionOperation convolution{};
  if (!find_convolution(graph, &convolution)) {
    *engines = {kMainEngine};
  } else if (mode == CUDNN_HEUR_MODE_FALLBACK) {
    *engines = {kImplicitEngine};
  } else if (is_backward_convolution(graph)) {
    *engines = {kMainEngine, kAtomicEngine, kImplicitEngine};
  } else {
    *engines = {kMainEngine, kImplicitEngine};
  }
  return kSuccess;
}

std::vector<int64_t> numerical_notes(const State& graph, int64_t engine) {
  std::vector<int64_t> notes;
  ConvolutionOperation convolution{};
  const bool tensor_cores = !find_convolution(graph, &convolution) ||
                            uses_tensor_cores(convolution.x.type, stand_in::capability_major());
  if (engine != kImplicitEngine && tensor_cores) notes.push_back(CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
  if (engine == kAtomicEngine) notes.push_back(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC);
  return notes;
}

int64_t workspace_bytes(const State& graph, int64_t engine) {
  if (engine != kMainEngine) return 0;
  ConvolutionOperation convolution{};
  if (find_convolution(graph, &convolution)) {
    return convolution_workspace(convolution.kind, convolution.x, convolution.w, convolution.y,
                                 stand_in::capability_major());
  }
  if (count_of(graph, CUDNN_BACKEND_OPERATION_SDPA_BWD_DESCRIPTOR) == 0) return 0;
  return attention_backward_workspace(tensor(*attention_query(graph)));
}

std::vector<int64_t> outside_tensors(const State& graph) {
  std::set<int64_t> ids;
  collect_outside(graph, &ids);
  return {ids.begin(), ids.end()};
}

}  // namespace spillway::cudnn
