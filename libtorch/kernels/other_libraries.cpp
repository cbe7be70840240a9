#include "libtorch/kernels/other_libraries.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "libtorch/kernels/boxed.h"
#include "libtorch/override.h"

namespace spillway::kernels {
namespace {

// Looked at this often before it is taken to have no CUDA kernel; what was there from the start, once.
constexpr int kLooks = 1000;

// PyTorch's operators have stand-ins of their own, and its collectives are no computation.
bool is_pytorchs(std::string_view name) {
  constexpr std::array<std::string_view, 3> kSpaces = {"aten::", "c10d::", "symm_mem::"};
  return std::any_of(kSpaces.begin(), kSpaces.end(),
                     [&](std::string_view space) { return name.substr(0, space.size()) == space; });
}

struct NewOperator {
  c10::OperatorName name;
  int looks = 0;
};

// A kernel in Python computes by PyTorch's operators, or by Triton, and needs no stand-in. Only the text of a
// registration tells where it was made.
bool is_in_python(const c10::OperatorHandle& op, std::string_view key) {
  const std::string state = op.dumpState();
  const size_t at = state.find("\n" + std::string(key) + ": ");
  if (at == std::string::npos) return false;
  const std::string_view line = std::string_view(state).substr(at + 1, state.find('\n', at + 1) - at - 1);
  // 2.8 has that place in the text for all of Python.
  return line.find(".py:") != std::string_view::npos || line.find(" /dev/null:") != std::string_view::npos;
}

class OtherLibraries final : public c10::OpRegistrationListener {
 public:
  // The dispatcher tells of what there is already, in this call.
  void watch() {
    // Never taken back: other threads may still compute at exit.
    static auto* const registration = new auto(c10::Dispatcher::singleton().addRegistrationListener(
        std::unique_ptr<c10::OpRegistrationListener>(this)));
    static_cast<void>(registration);
    looks_before_ = 0;
    adopt();
  }

  void onOperatorRegistered(const c10::OperatorHandle& op) override {
    if (is_pytorchs(op.operator_name().name)) return;
    const Locked lock(mutex_);
    new_.push_back({op.operator_name(), looks_before_});
    any_.store(true, std::memory_order_release);
  }

  void onOperatorDeregistered(const c10::OperatorHandle& op) override {
    const Locked lock(mutex_);
    std::erase_if(new_, [&](const NewOperator& one) { return one.name == op.operator_name(); });
  }

  void adopt() {
    if (!any_.load(std::memory_order_acquire)) return;
    std::vector<NewOperator> all;
    {
      const Locked lock(mutex_);
      all.swap(new_);
      any_.store(false, std::memory_order_release);
    }
    // Without the lock: a registration takes the dispatcher's, under which the listener is called.
    std::erase_if(all, [](NewOperator& one) { return is_settled(one) || ++one.looks == kLooks; });
    if (all.empty()) return;
    const Locked lock(mutex_);
    new_.insert(new_.end(), all.begin(), all.end());
    any_.store(true, std::memory_order_release);
  }

 private:
  static bool is_settled(const NewOperator& one) {
    const auto op = c10::Dispatcher::singleton().findSchema(one.name);
    if (!op || !op->hasKernelForDispatchKey(c10::DispatchKey::CUDA)) return false;
    if (op->hasKernelForDispatchKey(c10::DispatchKey::CPU) && !is_in_python(*op, "CUDA")) stand_in(*op);
    return true;
  }

  // Never taken back: a library is not unloaded.
  static void stand_in(const c10::OperatorHandle& op) {
    const std::string& full = op.operator_name().name;
    const std::string space = full.substr(0, full.find("::"));
    std::string local = full.substr(full.find("::") + 2);
    if (!op.operator_name().overload_name.empty()) local += "." + op.operator_name().overload_name;
    const WithoutOverrideWarning quiet;
    static Mutex<LockOrder::kKernelsAdopt> mutex;
    const Locked lock(mutex);
    static auto* const libraries SPILLWAY_PT_GUARDED_BY(mutex) = new std::map<std::string, torch::Library>;
    const auto library = libraries->try_emplace(space, torch::Library::IMPL, space, c10::DispatchKey::CUDA,
                                                __FILE__, __LINE__);
    library.first->second.impl(local.c_str(), boxed_kernel(op, c10::DispatchKey::CPU));
  }

  Mutex<LockOrder::kLeaf> mutex_;
  std::atomic<int> looks_before_{kLooks - 1};
  std::vector<NewOperator> new_ SPILLWAY_GUARDED_BY(mutex_);
  std::atomic<bool> any_{false};
};

// The dispatcher owns it, for the rest of the process.
OtherLibraries* watched = nullptr;

}  // namespace

void watch_other_libraries() {
  watched = new OtherLibraries;
  watched->watch();
}

void adopt_other_libraries() {
  if (watched != nullptr) watched->adopt();
}

}  // namespace spillway::kernels
