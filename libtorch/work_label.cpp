#include "libtorch/work_label.h"

#include <cxxabi.h>
#include <torch/csrc/autograd/function.h>

#include <cstdlib>
#include <mutex>
#include <typeindex>
#include <unordered_map>

namespace spillway::libtorch {
namespace {

std::string short_name(const char* mangled) {
  int status = 0;
  char* demangled = abi::__cxa_demangle(mangled, nullptr, nullptr, &status);
  std::string name = status == 0 && demangled != nullptr ? demangled : mangled;
  std::free(demangled);
  const size_t colon = name.rfind("::");
  return colon == std::string::npos ? name : name.substr(colon + 2);
}

}  // namespace

// Node::name() may take the interpreter's lock, so the label comes from the node's type.
std::string work_label() {
  static std::mutex mutex;
  static auto* const labels =
      new std::unordered_map<std::type_index, std::string>;  // threads outlive statics
  const auto node = torch::autograd::get_current_node();
  if (node == nullptr) return "";
  const std::type_info& type = typeid(*node);
  const std::lock_guard<std::mutex> lock(mutex);
  std::string& label = (*labels)[type];
  if (label.empty()) label = "backward of " + short_name(type.name());
  return label;
}

}  // namespace spillway::libtorch
