#include "simulator/libraries/cudnn/graph/descriptor.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "simulator/libraries/cudnn/graph/attributes.h"
#include "simulator/libraries/cudnn/handle.h"

namespace spillway::cudnn {
namespace {

std::string named(cudnnBackendAttributeName_t name) {
  return "attribute " + std::to_string(static_cast<int>(name));
}

cudnnStatus_t check_type(const State& state, cudnnBackendAttributeName_t name,
                         cudnnBackendAttributeType_t type) {
  if (!belongs(name, state.type)) {
    return fail(CUDNN_STATUS_BAD_PARAM, named(name) + " is none of a descriptor of type " +
                                            std::to_string(static_cast<int>(state.type)));
  }
  const Elements* elements = elements_of(name);
  if (element_size(type) == 0 || (elements != nullptr && elements->type != type)) {
    return fail(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE,
                named(name) + " is not of type " + std::to_string(static_cast<int>(type)));
  }
  return kSuccess;
}

cudnnStatus_t collect(const void* elements, int64_t count, std::vector<Shared>* children) {
  const auto* const given = static_cast<Descriptor* const*>(elements);
  for (int64_t i = 0; i < count; ++i) {
    if (given[i] == nullptr)
      return fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "a descriptor is a null pointer");
    if (!given[i]->state->finalized) {
      return fail(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "a descriptor that is referred to is not finalized");
    }
    children->push_back(given[i]->state);
  }
  return kSuccess;
}

template <class T>
std::vector<T> elements_as(const Attribute* attribute) {
  std::vector<T> values;
  if (attribute == nullptr || attribute->bytes.size() % sizeof(T) != 0) return values;
  values.resize(attribute->bytes.size() / sizeof(T));
  if (!values.empty())
    std::memcpy(static_cast<void*>(values.data()), attribute->bytes.data(), attribute->bytes.size());
  return values;
}

// cuDNN fills descriptors that the caller has made.
cudnnStatus_t hand_out(const std::vector<Shared>& children, int64_t count, void* elements) {
  auto* const wanted = static_cast<Descriptor**>(elements);
  for (int64_t i = 0; i < count; ++i) {
    if (wanted[i] == nullptr)
      return fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "a descriptor is a null pointer");
    if (wanted[i]->state->type != children[i]->type) {
      return fail(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "a descriptor of another type is to be filled");
    }
    wanted[i]->state = std::make_shared<State>(*children[i]);
  }
  return kSuccess;
}

}  // namespace

const Attribute* State::find(cudnnBackendAttributeName_t name) const {
  const auto found = attributes.find(name);
  return found == attributes.end() ? nullptr : &found->second;
}

std::vector<int64_t> State::integers(cudnnBackendAttributeName_t name) const {
  return elements_as<int64_t>(find(name));
}

int64_t State::integer(cudnnBackendAttributeName_t name, int64_t otherwise) const {
  const std::vector<int64_t> values = integers(name);
  return values.empty() ? otherwise : values.front();
}

bool State::flag(cudnnBackendAttributeName_t name) const {
  const std::vector<unsigned char> values = elements_as<unsigned char>(find(name));
  return !values.empty() && values.front() != 0;
}

int State::enumerator(cudnnBackendAttributeName_t name) const {
  const std::vector<int> values = elements_as<int>(find(name));
  return values.empty() ? 0 : values.front();
}

std::vector<const void*> State::pointers(cudnnBackendAttributeName_t name) const {
  return elements_as<const void*>(find(name));
}

Shared State::shared_child(cudnnBackendAttributeName_t name) const {
  const Attribute* attribute = find(name);
  return attribute == nullptr || attribute->children.empty() ? nullptr : attribute->children.front();
}

const State* State::child(cudnnBackendAttributeName_t name) const {
  return shared_child(name).get();
}

void State::put_integers(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                         const std::vector<int64_t>& values) {
  Attribute made{type, static_cast<int64_t>(values.size()), {}, {}};
  const std::size_t size = element_size(type);  // little endian: the low bytes come first
  for (const int64_t value : values) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    made.bytes.insert(made.bytes.end(), bytes, bytes + size);
  }
  attributes[name] = std::move(made);
}

void State::put_text(cudnnBackendAttributeName_t name, const char* text) {
  const auto* bytes = reinterpret_cast<const std::byte*>(text);
  const std::size_t length = std::strlen(text) + 1;
  attributes[name] = {CUDNN_TYPE_CHAR, static_cast<int64_t>(length), {bytes, bytes + length}, {}};
}

void State::put_children(cudnnBackendAttributeName_t name, std::vector<Shared> children) {
  const auto count = static_cast<int64_t>(children.size());
  attributes[name] = {CUDNN_TYPE_BACKEND_DESCRIPTOR, count, {}, std::move(children)};
}

cudnnStatus_t set_attribute(Descriptor& descriptor, cudnnBackendAttributeName_t name,
                            cudnnBackendAttributeType_t type, int64_t count, const void* elements) {
  if (descriptor.state->finalized) return fail(CUDNN_STATUS_NOT_INITIALIZED, "the descriptor is finalized");
  if (const cudnnStatus_t status = check_type(*descriptor.state, name, type); status != kSuccess)
    return status;
  const Elements* expected = elements_of(name);
  if (count < 0 || (expected != nullptr && count > expected->most)) {
    return fail(CUDNN_STATUS_BAD_PARAM, named(name) + " has no " + std::to_string(count) + " elements");
  }
  if (elements == nullptr && count > 0) {
    return fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "the elements are a null pointer");
  }
  Attribute made{type, count, {}, {}};
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    if (const cudnnStatus_t status = collect(elements, count, &made.children); status != kSuccess)
      return status;
  } else if (count > 0) {
    const auto* bytes = static_cast<const std::byte*>(elements);
    made.bytes.assign(bytes, bytes + count * element_size(type));
  }
  descriptor.state->attributes[name] = std::move(made);
  return kSuccess;
}

cudnnStatus_t get_attribute(const Descriptor& descriptor, cudnnBackendAttributeName_t name,
                            cudnnBackendAttributeType_t type, int64_t requested, int64_t* count,
                            void* elements) {
  if (!descriptor.state->finalized) {
    return fail(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "the descriptor is not finalized");
  }
  if (const cudnnStatus_t status = check_type(*descriptor.state, name, type); status != kSuccess)
    return status;
  if (requested < 0) return fail(CUDNN_STATUS_BAD_PARAM, "a negative number of elements is asked for");
  const Attribute* held = descriptor.state->find(name);
  if (held != nullptr && held->type != type) {
    return fail(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, named(name) + " was set with another type");
  }
  const Elements* expected = elements_of(name);
  if (held == nullptr && expected != nullptr && expected->most == 1 && requested > 0) {
    return fail(CUDNN_STATUS_NOT_SUPPORTED, named(name) + " is not set");
  }
  const int64_t total = held == nullptr ? 0 : held->count;
  const int64_t taken = std::min(total, requested);
  // A request for none is answered by how many there are, any other by how many were written: a frontend that
  // asks for the first of many takes the count for the length of what it got.
  if (count != nullptr) *count = requested == 0 ? total : taken;
  if (elements == nullptr || taken == 0) return kSuccess;
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) return hand_out(held->children, taken, elements);
  std::memcpy(elements, held->bytes.data(), static_cast<std::size_t>(taken) * element_size(type));
  return kSuccess;
}

}  // namespace spillway::cudnn
