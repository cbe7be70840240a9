#include "trainer/residency/activations/saved_tensors.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <mutex>
#include <utility>

namespace spillway::trainer {
namespace {

thread_local TensorKeeper* t_keeper = nullptr;

class KeeperHooks : public torch::autograd::SavedVariableHooks {
 public:
  explicit KeeperHooks(TensorKeeper& keeper) : keeper_(keeper) {}
  // Called at once, while the keeper's scope lives.
  void call_pack_hook(const at::Tensor& tensor) override { give_back_ = keeper_.keep(tensor); }
  at::Tensor call_unpack_hook() override { return give_back_(); }

 private:
  TensorKeeper& keeper_;
  std::function<at::Tensor()> give_back_;
};

class KeeperEngine : public torch::autograd::Engine {
 public:
  // LibTorch starts the threads of the first engine that is used, and of no other.
  void start() {
    initialize_device_threads_pool();
    if (thread_pool_shared_ == nullptr) start_device_threads();
  }

 private:
  std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    return t_keeper == nullptr ? nullptr : std::make_unique<KeeperHooks>(*t_keeper);
  }
};

// Its threads wait for work until the process ends, so it is never destroyed.
torch::autograd::Engine& keeper_engine() {
  static auto* const engine = [] {
    auto* const made = new KeeperEngine;
    made->start();
    return made;
  }();
  return *engine;
}

}  // namespace

KeeperScope::KeeperScope(TensorKeeper* keeper) : before_(std::exchange(t_keeper, keeper)) {
  static std::once_flag installed;
  if (keeper != nullptr)
    std::call_once(installed, [] { torch::autograd::set_default_engine_stub(keeper_engine); });
}

KeeperScope::~KeeperScope() {
  t_keeper = before_;
}

}  // namespace spillway::trainer
