// A descriptor of cuDNN's backend interface: a typed store of attributes that is closed by `finalize`.
//
// Thread-safety: none until finalized, then read only. Ownership: a Descriptor is the program's; what it
// says, its State, is shared with every descriptor that refers to it, so that a program may destroy them in
// any order. Errors: cuDNN's statuses, the reason by `fail`.
#pragma once
#include <cudnn.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

namespace spillway::cudnn {

struct State;
using Shared = std::shared_ptr<const State>;

struct Attribute {
  cudnnBackendAttributeType_t type = CUDNN_TYPE_INT64;
  int64_t count = 0;
  std::vector<std::byte> bytes;  // the elements, but for descriptors
  std::vector<Shared> children;  // the elements of CUDNN_TYPE_BACKEND_DESCRIPTOR
};

struct State {
  cudnnBackendDescriptorType_t type = CUDNN_BACKEND_TENSOR_DESCRIPTOR;
  bool finalized = false;
  std::map<int, Attribute> attributes;  // by cudnnBackendAttributeName_t

  const Attribute* find(cudnnBackendAttributeName_t name) const;
  // The elements of an attribute of integers; none if it is not set.
  std::vector<int64_t> integers(cudnnBackendAttributeName_t name) const;
  int64_t integer(cudnnBackendAttributeName_t name, int64_t otherwise = 0) const;
  bool flag(cudnnBackendAttributeName_t name) const;
  int enumerator(cudnnBackendAttributeName_t name) const;
  std::vector<const void*> pointers(cudnnBackendAttributeName_t name) const;
  // The one descriptor of an attribute, nullptr if it is not set.
  const State* child(cudnnBackendAttributeName_t name) const;
  Shared shared_child(cudnnBackendAttributeName_t name) const;

  void put_integers(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                    const std::vector<int64_t>& values);
  void put_text(cudnnBackendAttributeName_t name, const char* text);
  void put_children(cudnnBackendAttributeName_t name, std::vector<Shared> children);
};

struct Descriptor {
  std::shared_ptr<State> state;
};

cudnnStatus_t set_attribute(Descriptor& descriptor, cudnnBackendAttributeName_t name,
                            cudnnBackendAttributeType_t type, int64_t count, const void* elements);
cudnnStatus_t get_attribute(const Descriptor& descriptor, cudnnBackendAttributeName_t name,
                            cudnnBackendAttributeType_t type, int64_t requested, int64_t* count,
                            void* elements);

}  // namespace spillway::cudnn
