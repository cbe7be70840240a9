// The backend interface: functions over descriptors.
#include "simulator/libraries/cudnn/graph/attributes.h"
#include "simulator/libraries/cudnn/graph/plan.h"
#include "simulator/libraries/cudnn/handle.h"

using namespace spillway::cudnn;

namespace {

Descriptor* descriptor_of(cudnnBackendDescriptor_t opaque) {
  return static_cast<Descriptor*>(opaque);
}

bool is_final(const Descriptor* descriptor, cudnnBackendDescriptorType_t type) {
  return descriptor != nullptr && descriptor->state->type == type && descriptor->state->finalized;
}

}  // namespace

extern "C" {

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t* made) {
  if (made == nullptr) return kInvalid;
  *made = nullptr;
  if (!is_known(type)) {
    return fail(CUDNN_STATUS_NOT_SUPPORTED,
                "no descriptor is of type " + std::to_string(static_cast<int>(type)));
  }
  auto state = std::make_shared<State>();
  state->type = type;
  *made = new Descriptor{std::move(state)};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  return library.destroy(descriptor_of(descriptor));
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  return descriptor == nullptr ? kInvalid : finalize(*descriptor_of(descriptor)->state);
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count,
                                       const void* elements) {
  if (descriptor == nullptr) return kInvalid;
  return set_attribute(*descriptor_of(descriptor), name, type, count, elements);
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const descriptor,
                                       cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                                       int64_t requested, int64_t* count, void* elements) {
  if (descriptor == nullptr) return kInvalid;
  return get_attribute(*descriptor_of(descriptor), name, type, requested, count, elements);
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack) {
  if (handle == nullptr) return kInvalid;
  if (!is_final(descriptor_of(plan), CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) ||
      !is_final(descriptor_of(pack), CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)) {
    return fail(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED,
                "a finalized plan and a finalized variant pack are needed");
  }
  return execute(handle, *descriptor_of(plan)->state, *descriptor_of(pack)->state);
}
}
