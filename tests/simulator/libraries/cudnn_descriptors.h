// Descriptors of cuDNN's backend interface, made through its C functions, for the tests of the stand-in.
#pragma once
#include <cudnn.h>

#include <vector>

#include "tests/simulator/runtime/fixture.h"

namespace spillway::runtime_test {

// A descriptor that ends with the test.
class Descriptor {
 public:
  explicit Descriptor(cudnnBackendDescriptorType_t type) {
    EXPECT_EQ(cudnnBackendCreateDescriptor(type, &raw_), CUDNN_STATUS_SUCCESS);
  }
  ~Descriptor() { EXPECT_EQ(cudnnBackendDestroyDescriptor(raw_), CUDNN_STATUS_SUCCESS); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  cudnnBackendDescriptor_t raw() const { return raw_; }
  cudnnStatus_t finalize() { return cudnnBackendFinalize(raw_); }

  cudnnStatus_t set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                    const void* elements) {
    return cudnnBackendSetAttribute(raw_, name, type, count, elements);
  }
  cudnnStatus_t set(cudnnBackendAttributeName_t name, std::vector<int64_t> values) {
    return set(name, CUDNN_TYPE_INT64, static_cast<int64_t>(values.size()), values.data());
  }
  cudnnStatus_t set(cudnnBackendAttributeName_t name, const Descriptor& child) {
    return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &child.raw_);
  }
  cudnnStatus_t get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t requested,
                    int64_t* count, void* elements) const {
    return cudnnBackendGetAttribute(raw_, name, type, requested, count, elements);
  }

 private:
  cudnnBackendDescriptor_t raw_ = nullptr;
};

enum class Held { kByProgram, kVirtually, kAsConstant };

struct TensorDescriptor : Descriptor {
  TensorDescriptor(int64_t id, std::vector<int64_t> dims, cudnnDataType_t type, bool channels_last,
                   Held held = Held::kByProgram)
      : Descriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR) {
    const std::vector<int64_t> planes{dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1};
    const std::vector<int64_t> last{dims[1] * dims[2] * dims[3], 1, dims[3] * dims[1], dims[1]};
    EXPECT_EQ(set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type), CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(set(CUDNN_ATTR_TENSOR_DIMENSIONS, dims), CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(set(CUDNN_ATTR_TENSOR_STRIDES, channels_last ? last : planes), CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(set(CUDNN_ATTR_TENSOR_UNIQUE_ID, {id}), CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, {16}), CUDNN_STATUS_SUCCESS);
    if (held == Held::kVirtually) set_flag(CUDNN_ATTR_TENSOR_IS_VIRTUAL);
    if (held == Held::kAsConstant) set_constant();
    EXPECT_EQ(finalize(), CUDNN_STATUS_SUCCESS);
  }

 private:
  void set_flag(cudnnBackendAttributeName_t name) {
    const bool yes = true;
    EXPECT_EQ(set(name, CUDNN_TYPE_BOOLEAN, 1, &yes), CUDNN_STATUS_SUCCESS);
  }
  void set_constant() {
    static float value = 0.125f;
    void* const address = &value;
    set_flag(CUDNN_ATTR_TENSOR_IS_BY_VALUE);
    EXPECT_EQ(set(CUDNN_ATTR_TENSOR_CONSTANT_VALUE, CUDNN_TYPE_VOID_PTR, 1, &address), CUDNN_STATUS_SUCCESS);
  }
};

// y[8, 64, 16, 16] = x[8, 32, 16, 16] * w[64, 32, 3, 3].
class Convolution {
 public:
  explicit Convolution(cudnnDataType_t type, bool channels_last = false)
      : x_('x', {8, 32, 16, 16}, type, channels_last),
        w_('w', {64, 32, 3, 3}, type, channels_last),
        y_('y', {8, 64, 16, 16}, type, channels_last) {
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    convolution_.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    convolution_.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    for (const auto name : {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS,
                            CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_ATTR_CONVOLUTION_DILATIONS}) {
      convolution_.set(name, {1, 1});
    }
    EXPECT_EQ(convolution_.finalize(), CUDNN_STATUS_SUCCESS);
    operation_.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, x_);
    operation_.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, w_);
    operation_.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, y_);
    operation_.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, convolution_);
    EXPECT_EQ(operation_.finalize(), CUDNN_STATUS_SUCCESS);
    graph_.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operation_);
    EXPECT_EQ(graph_.finalize(), CUDNN_STATUS_SUCCESS);
  }

  const Descriptor& graph() const { return graph_; }

 private:
  TensorDescriptor x_, w_, y_;
  Descriptor convolution_{CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR};
  Descriptor operation_{CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR};
  Descriptor graph_{CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR};
};

// The plan that the heuristics put first for what has a graph.
class Plan {
 public:
  template <class Operations>
  explicit Plan(const Operations& operations, cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A) {
    heuristics_.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, operations.graph());
    heuristics_.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    status_ = heuristics_.finalize();
    if (status_ != CUDNN_STATUS_SUCCESS) return;
    cudnnBackendDescriptor_t best = configuration_.raw();
    EXPECT_EQ(
        heuristics_.get(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, nullptr, &best),
        CUDNN_STATUS_SUCCESS);
    plan_.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration_);
    EXPECT_EQ(plan_.finalize(), CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(plan_.get(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, nullptr, &workspace_),
              CUDNN_STATUS_SUCCESS);
  }

  cudnnStatus_t status() const { return status_; }
  const Descriptor& heuristics() const { return heuristics_; }
  int64_t workspace() const { return workspace_; }

  cudnnStatus_t run(cudnnHandle_t handle, std::vector<int64_t> ids, void* workspace) const {
    Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    std::vector<void*> addresses(ids.size(), workspace);
    pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, ids);
    pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, static_cast<int64_t>(ids.size()),
             addresses.data());
    pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    EXPECT_EQ(pack.finalize(), CUDNN_STATUS_SUCCESS);
    return cudnnBackendExecute(handle, plan_.raw(), pack.raw());
  }

 private:
  Descriptor heuristics_{CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR};
  Descriptor configuration_{CUDNN_BACKEND_ENGINECFG_DESCRIPTOR};
  Descriptor plan_{CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR};
  cudnnStatus_t status_ = CUDNN_STATUS_NOT_INITIALIZED;
  int64_t workspace_ = -1;
};

class Cudnn : public Runtime {
 protected:
  void SetUp() override {
    Runtime::SetUp();
    ASSERT_EQ(cudnnCreate(&handle_), CUDNN_STATUS_SUCCESS);
  }
  void TearDown() override {
    EXPECT_EQ(cudnnDestroy(handle_), CUDNN_STATUS_SUCCESS);
    Runtime::TearDown();
  }

  cudnnHandle_t handle_ = nullptr;
};

}  // namespace spillway::runtime_test
