// Attention in cuDNN's backend interface: one operation that holds others, and what came with cuDNN 9.20
// to 9.26.
#include "tests/simulator/libraries/cudnn_descriptors.h"

namespace spillway::runtime_test {
namespace {

TensorDescriptor matrix(int64_t id, int64_t rows, int64_t columns, Held held = Held::kByProgram) {
  return {id, {2, 8, rows, columns}, CUDNN_DATA_HALF, false, held};
}

// o = softmax(scale q k^T + bias) v. The softmax and the graph that adds the bias are inside of the
// operation.
class Attention {
 public:
  Attention() {
    describe_bias();
    describe_softmax();
    operation_.set(CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC, q_);
    operation_.set(CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC, k_);
    operation_.set(CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC, v_);
    operation_.set(CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC, o_);
    operation_.set(CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC, scale_);
    EXPECT_EQ(operation_.set(CUDNN_ATTR_OPERATION_SDPA_FWD_SOFTMAX_DESC, softmax_), CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(operation_.set(CUDNN_ATTR_OPERATION_SDPA_FWD_SUBGRAPH, subgraph_), CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(operation_.finalize(), CUDNN_STATUS_SUCCESS);
    graph_.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operation_);
    EXPECT_EQ(graph_.finalize(), CUDNN_STATUS_SUCCESS);
  }

  const Descriptor& graph() const { return graph_; }

 private:
  void describe_bias() {
    addition_.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, scores_);
    addition_.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, bias_);
    addition_.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, biased_);
    EXPECT_EQ(addition_.finalize(), CUDNN_STATUS_SUCCESS);
    subgraph_.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, addition_);
    EXPECT_EQ(subgraph_.finalize(), CUDNN_STATUS_SUCCESS);
  }

  void describe_softmax() {
    softmax_.set(CUDNN_ATTR_OPERATION_SOFTMAX_XDESC, biased_);
    EXPECT_EQ(softmax_.finalize(), CUDNN_STATUS_BAD_PARAM) << "where to?";
    softmax_.set(CUDNN_ATTR_OPERATION_SOFTMAX_YDESC, probabilities_);
    softmax_.set(CUDNN_ATTR_OPERATION_SOFTMAX_STATS_DESC, statistics_);
    EXPECT_EQ(softmax_.finalize(), CUDNN_STATUS_SUCCESS);
  }

  TensorDescriptor q_ = matrix('q', 128, 64), k_ = matrix('k', 128, 64), v_ = matrix('v', 128, 64);
  TensorDescriptor o_ = matrix('o', 128, 64), bias_ = matrix('b', 128, 128),
                   statistics_ = matrix('s', 128, 1);
  TensorDescriptor scores_ = matrix(1, 128, 128, Held::kVirtually);
  TensorDescriptor biased_ = matrix(2, 128, 128, Held::kVirtually);
  TensorDescriptor probabilities_ = matrix(3, 128, 128, Held::kVirtually);
  TensorDescriptor scale_{4, {1, 1, 1, 1}, CUDNN_DATA_FLOAT, false, Held::kAsConstant};
  Descriptor addition_{CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR};
  Descriptor subgraph_{CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR};
  Descriptor softmax_{CUDNN_BACKEND_OPERATION_SOFTMAX_DESCRIPTOR};
  Descriptor operation_{CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR};
  Descriptor graph_{CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR};
};

TEST_F(Cudnn, AnAttentionNeedsTheTensorsOfItsPartsAndNoneThatIsConstant) {
  const Plan plan{Attention()};
  ASSERT_EQ(plan.status(), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(plan.workspace(), 0);
  EXPECT_EQ(plan.run(handle_, {'q', 'k', 'v', 'o', 's'}, this), CUDNN_STATUS_BAD_PARAM) << "no bias";
  EXPECT_EQ(plan.run(handle_, {'q', 'k', 'v', 'o', 'b'}, this), CUDNN_STATUS_BAD_PARAM) << "no statistics";
  EXPECT_EQ(plan.run(handle_, {'q', 'k', 'v', 'o', 's', 'b'}, this), CUDNN_STATUS_SUCCESS);
}

TEST_F(Cudnn, TheOperationsOfTheNewestHeadersAreKnownByTheirAttributes) {
  const TensorDescriptor tensor('t', {1, 2, 3, 4}, CUDNN_DATA_HALF, false);
  const std::pair<cudnnBackendDescriptorType_t, cudnnBackendAttributeName_t> inputs[] = {
      {CUDNN_BACKEND_OPERATION_DIAGONAL_BAND_MASK_DESCRIPTOR, CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_XDESC},
      {CUDNN_BACKEND_OPERATION_SOFTMAX_DESCRIPTOR, CUDNN_ATTR_OPERATION_SOFTMAX_XDESC},
      {CUDNN_BACKEND_OPERATION_TRANSPOSE_DESCRIPTOR, CUDNN_ATTR_OPERATION_TRANSPOSE_XDESC},
      {CUDNN_BACKEND_OPERATION_SLICE_DESCRIPTOR, CUDNN_ATTR_OPERATION_SLICE_XDESC},
      {CUDNN_BACKEND_OPERATION_MOE_GROUPED_MATMUL_BWD_DESCRIPTOR,
       CUDNN_ATTR_OPERATION_MOE_GROUPED_MATMUL_BWD_TOKEN_DESC},
      {CUDNN_BACKEND_OPERATION_ROPE_FWD_DESCRIPTOR, CUDNN_ATTR_OPERATION_ROPE_FWD_XDESC},
      {CUDNN_BACKEND_OPERATION_ROPE_BWD_DESCRIPTOR, CUDNN_ATTR_OPERATION_ROPE_BWD_DYDESC}};
  for (const auto& [type, own] : inputs) {
    for (const auto& [other_type, name] : inputs) {
      Descriptor operation(type);
      EXPECT_EQ(operation.set(name, tensor), name == own ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM)
          << type << ' ' << name;
    }
  }
}

TEST_F(Cudnn, TheModesOfTheNewestHeadersAreElements) {
  const cudnnBackendReshapeMode_t reshape = CUDNN_RESHAPE_LOGICAL;
  const cudnnBackendOperationGraphMode_t mode = CUDNN_OPERATIONGRAPH_MODE_AUTO;
  Descriptor operation(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  EXPECT_EQ(operation.set(CUDNN_ATTR_OPERATION_RESHAPE_MODE, CUDNN_TYPE_RESHAPE_MODE, 1, &reshape),
            CUDNN_STATUS_SUCCESS);
  Descriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  EXPECT_EQ(graph.set(CUDNN_ATTR_OPERATIONGRAPH_MODE, CUDNN_TYPE_OPERATIONGRAPH_MODE, 1, &mode),
            CUDNN_STATUS_SUCCESS);
}

}  // namespace
}  // namespace spillway::runtime_test
