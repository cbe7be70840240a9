#include "libtorch/allocator/optimizer_steps.h"

#include <ATen/record_function.h>

#include <string_view>

#include "libtorch/allocator/core.h"

namespace spillway::libtorch {
namespace {

// torch/optim/optimizer.py, profile_hook_step: "Optimizer.step#AdamW.step".
std::unique_ptr<at::ObserverContext> before_named_work(const at::RecordFunction& function) {
  if (std::string_view(function.name()).starts_with("Optimizer.step#"))
    core().table->note_optimizer_step(function.name());
  return nullptr;
}

}  // namespace

void watch_optimizer_steps() {
  at::addGlobalCallback(at::RecordFunctionCallback(before_named_work).scopes({at::RecordScope::USER_SCOPE}));
}

}  // namespace spillway::libtorch
