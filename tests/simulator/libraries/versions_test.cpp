// What a program asks of the libraries before it uses them.
#include <cublas_v2.h>
#include <cufft.h>
#include <cusolver_common.h>
#include <cusparse.h>
#include <gtest/gtest.h>

extern "C" cusolverStatus_t cusolverGetVersion(int*);

namespace spillway::runtime_test {
namespace {

TEST(Versions, AreThoseOfTheHeaders) {
  int version = 0;
  EXPECT_EQ(cublasGetVersion(nullptr, &version), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(version, CUBLAS_VERSION);
  EXPECT_EQ(cufftGetVersion(&version), CUFFT_SUCCESS);
  EXPECT_EQ(version, CUFFT_VERSION);
  EXPECT_EQ(cusolverGetVersion(&version), CUSOLVER_STATUS_SUCCESS);
  EXPECT_EQ(version, CUSOLVER_VERSION);
  EXPECT_EQ(cusparseGetVersion(nullptr, &version), CUSPARSE_STATUS_SUCCESS);
  EXPECT_EQ(version, CUSPARSE_VERSION);
  EXPECT_EQ(cufftGetVersion(nullptr), CUFFT_INVALID_VALUE);
}

TEST(Versions, CusparseGivesItsParts) {
  int major = 0, minor = 0, patch = 0;
  EXPECT_EQ(cusparseGetProperty(MAJOR_VERSION, &major), CUSPARSE_STATUS_SUCCESS);
  EXPECT_EQ(cusparseGetProperty(MINOR_VERSION, &minor), CUSPARSE_STATUS_SUCCESS);
  EXPECT_EQ(cusparseGetProperty(PATCH_LEVEL, &patch), CUSPARSE_STATUS_SUCCESS);
  EXPECT_EQ(major * 1000 + minor * 100 + patch, CUSPARSE_VERSION);
  EXPECT_EQ(cusparseGetProperty(static_cast<libraryPropertyType>(3), &patch), CUSPARSE_STATUS_INVALID_VALUE);
}

TEST(Versions, CublasNamesItsStatuses) {
  EXPECT_STREQ(cublasGetStatusName(CUBLAS_STATUS_INVALID_VALUE), "CUBLAS_STATUS_INVALID_VALUE");
  EXPECT_NE(cublasGetStatusString(static_cast<cublasStatus_t>(-1)), nullptr);
}

}  // namespace
}  // namespace spillway::runtime_test
