// cuBLAS and cuBLASLt as a program meets them.
#include <cublasLt.h>
#include <cublas_v2.h>

#include "tests/simulator/runtime/fixture.h"

namespace spillway::runtime_test {
namespace {

class Cublas : public Runtime {
 protected:
  void SetUp() override {
    Runtime::SetUp();
    ASSERT_EQ(cublasCreate(&handle_), CUBLAS_STATUS_SUCCESS);
  }

  void TearDown() override {
    EXPECT_EQ(cublasDestroy(handle_), CUBLAS_STATUS_SUCCESS);
    Runtime::TearDown();
  }

  cublasHandle_t handle_ = nullptr;
};

TEST_F(Cublas, AHandleHasAWorkspaceOnTheCard) {
  const uint64_t before = charged("cublas.handle");
  cublasHandle_t another = nullptr;
  ASSERT_EQ(cublasCreate(&another), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(charged("cublas.handle") - before, 4 * kMiB);
  EXPECT_EQ(cublasDestroy(another), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(charged("cublas.handle"), before);
}

TEST_F(Cublas, ItsCodeIsOnTheCardOnce) {
  EXPECT_EQ(charged("cublas.library"), 8 * kMiB);
  cublasHandle_t another = nullptr;
  ASSERT_EQ(cublasCreate(&another), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cublasDestroy(another), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(charged("cublas.library"), 8 * kMiB);
}

TEST_F(Cublas, AHandleThatDoesNotFitIsNoError) {
  size_t free = 0;
  size_t total = 0;
  void* everything = nullptr;
  ASSERT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  ASSERT_EQ(cudaMalloc(&everything, free), cudaSuccess);
  cublasHandle_t refused = nullptr;
  EXPECT_EQ(cublasCreate(&refused), CUBLAS_STATUS_ALLOC_FAILED);
  EXPECT_EQ(refused, nullptr);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "the library's error is not the program's";
  EXPECT_EQ(cudaFree(everything), cudaSuccess);
}

TEST_F(Cublas, ModesAreRemembered) {
  cublasMath_t math = CUBLAS_DEFAULT_MATH;
  cublasPointerMode_t pointers = CUBLAS_POINTER_MODE_HOST;
  ASSERT_EQ(cublasSetMathMode(handle_, CUBLAS_TF32_TENSOR_OP_MATH), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cublasSetPointerMode(handle_, CUBLAS_POINTER_MODE_DEVICE), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cublasGetMathMode(handle_, &math), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cublasGetPointerMode(handle_, &pointers), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(math, CUBLAS_TF32_TENSOR_OP_MATH);
  EXPECT_EQ(pointers, CUBLAS_POINTER_MODE_DEVICE);
}

TEST_F(Cublas, AProductIsWorkOnTheHandlesStream) {
  const float one = 1;
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cublasSetStream(handle_, stream), CUBLAS_STATUS_SUCCESS);
  float* matrix = nullptr;
  ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&matrix), 4096), cudaSuccess);
  ASSERT_EQ(
      cublasSgemm(handle_, CUBLAS_OP_N, CUBLAS_OP_N, 8, 8, 8, &one, matrix, 8, matrix, 8, &one, matrix, 8),
      CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(counts().launches, 1u);
  ASSERT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  EXPECT_EQ(cudaFree(matrix), cudaSuccess);
  EXPECT_EQ(
      cublasSgemm(nullptr, CUBLAS_OP_N, CUBLAS_OP_N, 8, 8, 8, &one, matrix, 8, matrix, 8, &one, matrix, 8),
      CUBLAS_STATUS_NOT_INITIALIZED);
}

TEST_F(Cublas, AResultOnTheHostIsDefined) {
  float result = 5;
  ASSERT_EQ(cublasSdot(handle_, 1, &result, 1, &result, 1, &result), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(result, 0);
}

TEST_F(Cublas, InformationForTheHostIsThere) {
  int information = 7;
  ASSERT_EQ(cublasSgeqrfBatched(handle_, 1, 1, nullptr, 1, nullptr, &information, 1), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(information, 0);
}

TEST_F(Cublas, MatricesTravel) {
  const float columns[6] = {1, 2, 3, 4, 5, 6};  // two of three, of which two rows travel
  float back[4] = {};
  void* matrix = nullptr;
  ASSERT_EQ(cudaMalloc(&matrix, 4096), cudaSuccess);
  EXPECT_EQ(cublasSetMatrixAsync(2, 2, 4, columns, 3, matrix, 2, nullptr), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cublasGetMatrixAsync(2, 2, 4, matrix, 2, back, 2, nullptr), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_THAT(back, ::testing::ElementsAre(1, 2, 4, 5));
  EXPECT_EQ(cublasGetMatrixAsync(2, 2, 4, matrix, 1, back, 2, nullptr), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cudaFree(matrix), cudaSuccess);
}

TEST_F(Cublas, LtHasHandlesOfItsOwn) {
  cublasLtHandle_t light = nullptr;
  ASSERT_EQ(cublasLtCreate(&light), CUBLAS_STATUS_SUCCESS);
  EXPECT_NE(light, nullptr);
  EXPECT_EQ(charged("cublaslt.library"), 8 * kMiB);
  EXPECT_EQ(cublasLtDestroy(light), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cublasLtCreate(nullptr), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_STREQ(cublasLtGetStatusName(CUBLAS_STATUS_NOT_SUPPORTED), "CUBLAS_STATUS_NOT_SUPPORTED");
}

template <typename Value>
Value attribute_of(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute) {
  Value value{};
  size_t written = 0;
  EXPECT_EQ(cublasLtMatrixLayoutGetAttribute(layout, attribute, &value, sizeof value, &written),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(written, sizeof value);
  return value;
}

TEST_F(Cublas, LtGivesBackWhatADescriptorWasMadeWith) {
  cublasLtMatrixLayout_t layout = nullptr;
  ASSERT_EQ(cublasLtMatrixLayoutCreate(&layout, CUDA_R_16BF, 8, 4, 16), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(attribute_of<cudaDataType>(layout, CUBLASLT_MATRIX_LAYOUT_TYPE), CUDA_R_16BF);
  EXPECT_EQ(attribute_of<uint64_t>(layout, CUBLASLT_MATRIX_LAYOUT_ROWS), 8u);
  EXPECT_EQ(attribute_of<int64_t>(layout, CUBLASLT_MATRIX_LAYOUT_LD), 16);
  const int32_t batches = 3;
  ASSERT_EQ(
      cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batches, sizeof batches),
      CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(attribute_of<int32_t>(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT), 3);
  EXPECT_EQ(cublasLtMatrixLayoutDestroy(layout), CUBLAS_STATUS_SUCCESS);
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtEpilogue_t epilogue{};
  ASSERT_EQ(cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cublasLtMatmulDescGetAttribute(operation, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                           sizeof epilogue, nullptr),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(epilogue, CUBLASLT_EPILOGUE_DEFAULT);
  EXPECT_EQ(cublasLtMatmulDescDestroy(operation), CUBLAS_STATUS_SUCCESS);
}

TEST_F(Cublas, LtOffersOneAlgorithmAndRunsIt) {
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t layout = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
  ASSERT_EQ(cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cublasLtMatrixLayoutCreate(&layout, CUDA_R_32F, 8, 8, 8), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cublasLtMatmulPreferenceCreate(&preference), CUBLAS_STATUS_SUCCESS);
  const auto light = reinterpret_cast<cublasLtHandle_t>(handle_);
  cublasLtMatmulHeuristicResult_t result[4];
  int found = 0;
  ASSERT_EQ(cublasLtMatmulAlgoGetHeuristic(light, operation, layout, layout, layout, layout, preference, 4,
                                           result, &found),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(found, 1);
  EXPECT_EQ(result[0].state, CUBLAS_STATUS_SUCCESS);
  const float one = 1;
  char matrix = 0;
  EXPECT_EQ(cublasLtMatmul(light, operation, &one, &matrix, layout, &matrix, layout, &one, &matrix, layout,
                           &matrix, layout, &result[0].algo, nullptr, 0, nullptr),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(counts().launches, 1u);
  EXPECT_EQ(cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_TRANSA, nullptr, 4),
            CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cublasLtMatmulPreferenceDestroy(preference), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cublasLtMatrixLayoutDestroy(layout), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cublasLtMatmulDescDestroy(operation), CUBLAS_STATUS_SUCCESS);
}

}  // namespace
}  // namespace spillway::runtime_test
