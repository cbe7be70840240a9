// What each attribute of the backend interface may hold. The enumeration of cudnn_graph.h numbers the
// attributes of a descriptor in a row; which rows belong to which descriptor, the elements of those that the
// stand-in reads, and which ones a descriptor cannot be finalized without are told here.
//
// Thread-safety: constant tables.
#pragma once
#include <cudnn.h>

#include <cstddef>
#include <span>

namespace spillway::cudnn {

bool is_known(cudnnBackendDescriptorType_t type);
bool belongs(cudnnBackendAttributeName_t name, cudnnBackendDescriptorType_t type);

struct Elements {
  cudnnBackendAttributeName_t name;
  cudnnBackendAttributeType_t type;
  int most;
};
// nullptr for an attribute that is only kept.
const Elements* elements_of(cudnnBackendAttributeName_t name);

// 0 for a type that there is not.
std::size_t element_size(cudnnBackendAttributeType_t type);

std::span<const cudnnBackendAttributeName_t> required(cudnnBackendDescriptorType_t type);

}  // namespace spillway::cudnn
