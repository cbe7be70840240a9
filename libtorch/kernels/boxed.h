// The boxed function that stands on the CUDA key of every operator without a function of its own.
//
// Thread-safety: an OperatorKernel is called by any number of threads. Errors: c10::Error; an operator
// without a CPU kernel raises NotImplementedError naming it.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

namespace spillway::kernels {

// Redispatches to `key`, one of the CPU's, over aliases, or, where it has no kernel, names the operator in an
// error.
torch::CppFunction boxed_kernel(const c10::OperatorHandle& op, c10::DispatchKey key);

// The same kernel, so that a graph keeps it too.
torch::CppFunction recordable(c10::KernelFunction kernel);

}  // namespace spillway::kernels
