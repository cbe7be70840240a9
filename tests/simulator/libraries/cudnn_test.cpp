// cuDNN's backend interface as a program meets it: what it is given, and what it is refused.
#include "tests/simulator/libraries/cudnn_descriptors.h"

namespace spillway::runtime_test {
namespace {

TEST_F(Cudnn, TheVersionIsTheNewestKnownWhereThereIsNoPyTorch) {
  EXPECT_EQ(cudnnGetVersion(), 92600u);
  EXPECT_STREQ(cudnnGetErrorString(CUDNN_STATUS_BAD_PARAM), "CUDNN_STATUS_BAD_PARAM");
}

TEST_F(Cudnn, AHandleThatDoesNotFitIsRefused) {
  size_t free = 0;
  size_t total = 0;
  void* everything = nullptr;
  ASSERT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  ASSERT_EQ(cudaMalloc(&everything, free), cudaSuccess);
  cudnnHandle_t refused = nullptr;
  EXPECT_EQ(cudnnCreate(&refused), CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED);
  EXPECT_EQ(refused, nullptr);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "the library's error is not the program's";
  EXPECT_EQ(cudaFree(everything), cudaSuccess);
}

TEST_F(Cudnn, AttributesAreTypedAndCounted) {
  Descriptor tensor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  const int64_t many[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
  EXPECT_EQ(tensor.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_FLOAT, 4, many),
            CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE);
  EXPECT_EQ(tensor.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 9, many), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(tensor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 2, many), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(tensor.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, -1, many), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(tensor.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, nullptr),
            CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
  EXPECT_EQ(tensor.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, many), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(tensor.finalize(), CUDNN_STATUS_BAD_PARAM);
  char reason[200] = "";
  cudnnGetLastErrorString(reason, sizeof reason);
  EXPECT_THAT(reason, ::testing::HasSubstr("must be set before finalizing"));
}

TEST_F(Cudnn, WhatIsFinalizedIsClosed) {
  TensorDescriptor tensor('t', {1, 2, 3, 4}, CUDNN_DATA_FLOAT, false);
  EXPECT_EQ(tensor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, {5}), CUDNN_STATUS_NOT_INITIALIZED);
  int64_t count = 0;
  int64_t dims[4] = {};
  EXPECT_EQ(tensor.get(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, &count, dims),
            CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(count, 4);
  EXPECT_THAT(dims, ::testing::ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(tensor.get(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_FLOAT, 4, &count, dims),
            CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE);
  Descriptor open(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  EXPECT_EQ(open.get(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, &count, dims),
            CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED);
  Descriptor operation(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
  EXPECT_EQ(operation.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, open),
            CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED);
  EXPECT_EQ(cudnnBackendFinalize(nullptr), CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
}

TEST_F(Cudnn, DescriptorsOutliveWhatTheyWereMadeOf) {
  const auto made = std::make_unique<Plan>(Convolution(CUDNN_DATA_HALF));
  EXPECT_EQ(made->status(), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(made->run(handle_, {'x', 'w', 'y'}, this), CUDNN_STATUS_SUCCESS);
}

TEST_F(Cudnn, PlansRunOnTheHandlesStreamWithAllThatTheyNeed) {
  const Plan plan{Convolution(CUDNN_DATA_HALF)};
  constexpr int64_t kTensors = 2 * (8 * 32 * 256 + 64 * 32 * 9 + 8 * 64 * 256);
  EXPECT_EQ(plan.workspace(), kTensors) << "NCHW is copied to NHWC";
  EXPECT_EQ(Plan(Convolution(CUDNN_DATA_HALF, true)).workspace(), 0);
  EXPECT_EQ(Plan(Convolution(CUDNN_DATA_HALF), CUDNN_HEUR_MODE_FALLBACK).workspace(), 0);
  EXPECT_EQ(plan.run(handle_, {'x', 'w', 'y'}, nullptr), CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
  EXPECT_EQ(plan.run(handle_, {'x', 'w'}, this), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(counts().launches, 0u);
  EXPECT_EQ(plan.run(handle_, {'x', 'w', 'y'}, this), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(counts().launches, 1u);
}

// The configurations that a program gets that has room for `room` of them, and how many cuDNN says these are.
int64_t count_of_results(const Plan& plan, int64_t room) {
  std::vector<std::unique_ptr<Descriptor>> owned;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (int64_t i = 0; i < room; ++i) {
    owned.push_back(std::make_unique<Descriptor>(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
    raw.push_back(owned.back()->raw());
  }
  int64_t count = -1;
  EXPECT_EQ(plan.heuristics().get(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, room, &count,
                                  raw.data()),
            CUDNN_STATUS_SUCCESS);
  return count;
}

TEST_F(Cudnn, WhoAsksForTheFirstOfManyIsToldHowManyCame) {
  const Plan plan{Convolution(CUDNN_DATA_HALF)};
  EXPECT_EQ(count_of_results(plan, 0), 2) << "all that there are";
  EXPECT_EQ(count_of_results(plan, 1), 1);
  EXPECT_EQ(count_of_results(plan, 2), 2);
  EXPECT_EQ(count_of_results(plan, 50), 2);
}

TEST_F(Cudnn, WhatTheCardCanNotDoIsRefused) {
  EXPECT_EQ(Plan(Convolution(CUDNN_DATA_BFLOAT16)).status(), CUDNN_STATUS_SUCCESS) << "capability 8.0";
  EXPECT_EQ(Plan(Convolution(CUDNN_DATA_FP8_E4M3)).status(), CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH);
  EXPECT_EQ(Plan(Convolution(CUDNN_DATA_INT32)).status(), CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE);
  const Convolution convolution(CUDNN_DATA_HALF);
  Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  engine.set(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, convolution.graph());
  engine.set(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, {57});
  EXPECT_EQ(engine.finalize(), CUDNN_STATUS_NOT_SUPPORTED);
  cudnnBackendDescriptor_t none = this;
  EXPECT_EQ(cudnnBackendCreateDescriptor(static_cast<cudnnBackendDescriptorType_t>(63), &none),
            CUDNN_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(none, nullptr);
}

TEST_F(Cudnn, TheWeightsOfARecurrentLayerLieSideBySide) {
  cudnnRNNDescriptor_t rnn = nullptr;
  cudnnTensorDescriptor_t matrix = nullptr;
  cudnnTensorDescriptor_t bias = nullptr;
  ASSERT_EQ(cudnnCreateRNNDescriptor(&rnn), CUDNN_STATUS_SUCCESS);
  ASSERT_EQ(cudnnCreateTensorDescriptor(&matrix), CUDNN_STATUS_SUCCESS);
  ASSERT_EQ(cudnnCreateTensorDescriptor(&bias), CUDNN_STATUS_SUCCESS);
  constexpr int kInput = 10, kHidden = 20, kLayers = 2;
  ASSERT_EQ(
      cudnnSetRNNDescriptor_v8(rnn, CUDNN_RNN_ALGO_STANDARD, CUDNN_LSTM, CUDNN_RNN_DOUBLE_BIAS,
                               CUDNN_BIDIRECTIONAL, CUDNN_LINEAR_INPUT, CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT,
                               CUDNN_DEFAULT_MATH, kInput, kHidden, kHidden, kLayers, nullptr, 0),
      CUDNN_STATUS_SUCCESS);
  size_t bytes = 0;
  ASSERT_EQ(cudnnGetRNNWeightSpaceSize(handle_, rnn, &bytes), CUDNN_STATUS_SUCCESS);
  const size_t first = 2 * 4 * kHidden * (kInput + kHidden + 2);
  const size_t second = 2 * 4 * kHidden * (2 * kHidden + kHidden + 2);
  EXPECT_EQ(bytes, (first + second) * sizeof(float));
  std::vector<bool> used(bytes / sizeof(float), false);
  for (int layer = 0; layer < 2 * kLayers; ++layer) {
    for (int linear = 0; linear < 8; ++linear) {
      void* addresses[2] = {};
      ASSERT_EQ(cudnnGetRNNWeightParams(handle_, rnn, layer, bytes, this, linear, matrix, &addresses[0], bias,
                                        &addresses[1]),
                CUDNN_STATUS_SUCCESS);
      for (int i = 0; i < 2; ++i) {
        cudnnDataType_t type;
        int count = 0, dims[3] = {}, strides[3] = {};
        ASSERT_EQ(cudnnGetTensorNdDescriptor(i == 0 ? matrix : bias, 3, &type, &count, dims, strides),
                  CUDNN_STATUS_SUCCESS);
        ASSERT_EQ(count, 3);
        const auto start = (static_cast<char*>(addresses[i]) - reinterpret_cast<char*>(this)) / sizeof(float);
        for (size_t at = start; at < start + dims[0] * dims[1] * dims[2]; ++at) {
          ASSERT_LT(at, used.size());
          ASSERT_FALSE(used[at]) << "two weights overlap";
          used[at] = true;
        }
      }
    }
  }
  EXPECT_EQ(std::count(used.begin(), used.end(), false), 0) << "the space has gaps";
  void* none = this;
  EXPECT_EQ(cudnnGetRNNWeightParams(handle_, rnn, 4, bytes, this, 0, matrix, &none, bias, &none),
            CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(cudnnDestroyTensorDescriptor(bias), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(cudnnDestroyTensorDescriptor(matrix), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(cudnnDestroyRNNDescriptor(rnn), CUDNN_STATUS_SUCCESS);
}

}  // namespace
}  // namespace spillway::runtime_test
