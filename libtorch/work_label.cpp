#include "libtorch/work_label.h"

#include <cxxabi.h>
#include <torch/csrc/autograd/function.h>

#include <cstdlib>
#include <typeindex>
#include <unordered_map>

#include "base/mutex.h"

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
  static Mutex<LockOrder::kLeaf> mutex;
  // Never destroyed: threads outlive static destruction.
  static auto* const labels SPILLWAY_PT_GUARDED_BY(mutex) =
      new std::unordered_map<std::type_index, std::string>;
  const auto node = torch::autograd::get_current_node();
  if (node == nullptr) return "";
  const std::type_info& type = typeid(*node);
  const Locked lock(mutex);
  std::string& label = (*labels)[type];
  if (label.empty()) label = "backward of " + short_name(type.name());
  return label;
}

}  // namespace spillway::libtorch
