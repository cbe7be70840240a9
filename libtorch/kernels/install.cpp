// spillway_kernels_install: CPU kernels on the CUDA dispatch key of every aten operator that has a CUDA
// kernel, where the simulated devices store values; where they do not, what is known of small tensors.
#include <ATen/ops/from_blob.h>
#include <ATen/ops/sqrt_cpu_dispatch.h>
#include <c10/util/Exception.h>

#include <cstdio>
#include <exception>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "libtorch/kernels/attention/attention.h"
#include "libtorch/kernels/boxed.h"
#include "libtorch/kernels/known/observer.h"
#include "libtorch/kernels/operators/copy.h"
#include "libtorch/kernels/operators/library_convolutions.h"
#include "libtorch/kernels/operators/library_operators.h"
#include "libtorch/kernels/operators/matrix_operators.h"
#include "libtorch/kernels/operators/random.h"
#include "libtorch/kernels/operators/synchronized_norm.h"
#include "libtorch/kernels/operators/wide_products.h"
#include "libtorch/kernels/other_libraries.h"
#include "libtorch/kernels/own_kernels.h"
#include "libtorch/kernels/recurrent/recurrent.h"
#include "libtorch/kernels/redirect.h"
#include "libtorch/kernels/simulator.h"
#include "libtorch/override.h"

namespace spillway::kernels {
namespace {

// These make or describe tensors and touch no element: CUDA's own functions serve them.
const std::set<std::string_view>& kept_operators() {
  static const std::set<std::string_view> names = {"empty.memory_format",
                                                   "empty_strided",
                                                   "as_strided",
                                                   "view",
                                                   "view.dtype",
                                                   "_reshape_alias",
                                                   "view_as_real",
                                                   "view_as_complex",
                                                   "unfold",
                                                   "alias",
                                                   "resize_",
                                                   "_resize_output_",
                                                   "set_",
                                                   "set_.source_Storage",
                                                   "set_.source_Storage_storage_offset",
                                                   "set_.source_Tensor",
                                                   "is_set_to",
                                                   "record_stream",
                                                   "_lazy_clone",
                                                   "_efficientzerotensor",
                                                   "_cudnn_rnn_flatten_weight"};
  return names;
}

// Composite operators that reach CUDA kernels by other ways than the dispatcher (or cuDNN by choice), and are
// right when computed as a whole on the CPU. They have autograd formulas of their own.
constexpr const char* kWholeOperators[] = {"convolution"};

std::string name_in_library(const c10::OperatorName& name) {
  const std::string plain = name.name.substr(std::string_view("aten::").size());
  return name.overload_name.empty() ? plain : plain + "." + name.overload_name;
}

// Of sparse tensors: the same, and what PyTorch computes with their parts, which are dense.
const std::set<std::string_view>& kept_sparse_operators() {
  static const std::set<std::string_view> names = {"empty.memory_format",
                                                   "empty_like",
                                                   "_sparse_coo_tensor_with_dims",
                                                   "_sparse_coo_tensor_with_dims_and_tensors",
                                                   "_dimI",
                                                   "_dimV",
                                                   "_indices",
                                                   "_nnz",
                                                   "_values",
                                                   "indices",
                                                   "values",
                                                   "crow_indices",
                                                   "col_indices",
                                                   "ccol_indices",
                                                   "row_indices",
                                                   "is_coalesced",
                                                   "sparse_dim",
                                                   "dense_dim",
                                                   "_coalesced_",
                                                   "clone",
                                                   "copy_",
                                                   "copy_sparse_to_sparse_",
                                                   "resize_",
                                                   "resize_as_sparse_",
                                                   "sparse_resize_",
                                                   "sparse_resize_and_clear_",
                                                   "zero_"};
  return names;
}

// Every operator with a kernel for `key` is computed by that of `cpu_key`.
void register_boxed(torch::Library& library, c10::DispatchKey key, c10::DispatchKey cpu_key,
                    const std::set<std::string_view>& kept) {
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (name.name.rfind("aten::", 0) != 0) continue;
    const std::string local = name_in_library(name);
    if (kept.count(local) != 0) continue;
    const auto op = dispatcher.findOp(name);
    if (!op || !op->hasSchema() || !op->hasKernelForDispatchKey(key)) continue;
    library.impl(local.c_str(), boxed_kernel(*op, cpu_key));
  }
}

// Operators of ours that this LibTorch does not have yet are left out below.
void record_unboxed(torch::Library& library, const OwnKernels& own) {
  for (const auto& [name, function] : own.kernels()) {
    const size_t dot = name.find('.');
    const std::string overload = dot == std::string::npos ? "" : name.substr(dot + 1);
    const bool exists =
        c10::Dispatcher::singleton().findSchema({"aten::" + name.substr(0, dot), overload}).has_value();
    if (exists) library.impl(name.c_str(), recordable(function));
  }
}

void register_whole(torch::Library& library) {
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const char* name : kWholeOperators) {
    const auto op = dispatcher.findSchema({std::string("aten::") + name, ""});
    if (op) library.impl(name, boxed_kernel(*op, c10::DispatchKey::CPU));
  }
}

// Never destroyed: its destructor would take the kernels out while other threads still compute at exit.
torch::Library& library_for(c10::DispatchKey key) {
  static auto* const libraries = new std::vector<std::unique_ptr<torch::Library>>;
  return *libraries->emplace_back(
      std::make_unique<torch::Library>(torch::Library::IMPL, "aten", key, __FILE__, __LINE__));
}

// MKL's vector functions find out about the processor when the first of them is called. Where two threads
// make that call at once, which the first large square root or hyperbolic tangent does, one of them may
// compute its half with fewer digits. Seen with PyTorch 2.11 alone, on a CPU. Not by the dispatcher: a
// program may have modes that look at every operator.
void settle_vector_functions() {
  float value = 1;
  at::Tensor alone = at::from_blob(&value, {1}, at::kFloat);
  at::cpu::sqrt_out(alone, alone);
}

void compute_on_the_cpu() {
  settle_vector_functions();
  TORCH_CHECK(c10::Dispatcher::singleton()
                  .findSchemaOrThrow("aten::add", "Tensor")
                  .hasKernelForDispatchKey(c10::DispatchKey::CUDA),
              "libtorch_cuda is not loaded");
  const WithoutOverrideWarning quiet;
  torch::Library& library = library_for(c10::DispatchKey::CUDA);
  register_boxed(library, c10::DispatchKey::CUDA, c10::DispatchKey::CPU, kept_operators());
  register_whole(library);
  OwnKernels own(library);
  register_copies(own);
  register_random(own);
  register_attention(own);
  register_library_operators(own);
  register_library_convolutions(own);
  register_synchronized_norm(own);
  register_wide_products(own);
  if (models_overheads()) register_matrix_operators(own);
  register_recurrent(own);
  record_unboxed(library_for(c10::DispatchKey::CUDA), own);
  using Pair = std::pair<c10::DispatchKey, c10::DispatchKey>;
  for (const auto& [key, cpu_key] : {Pair{c10::DispatchKey::SparseCUDA, c10::DispatchKey::SparseCPU},
                                     Pair{c10::DispatchKey::SparseCsrCUDA, c10::DispatchKey::SparseCsrCPU}})
    register_boxed(library_for(key), key, cpu_key, kept_sparse_operators());
  install_redirect();
  watch_other_libraries();
}

constexpr int kInstalled = 0, kFailed = 1, kLater = -1;

int install() {
  find_simulator();
  if (!stores_values()) return observe_operators() ? kInstalled : kLater;
  compute_on_the_cpu();
  return kInstalled;
}

int install_reporting() noexcept {
  try {
    return install();
  } catch (const c10::Error& error) {
    std::fprintf(stderr, "spillway: CPU kernels for CUDA tensors not installed: %s\n",
                 error.what_without_backtrace());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "spillway: CPU kernels for CUDA tensors not installed: %s\n", error.what());
  }
  return kFailed;
}

}  // namespace
}  // namespace spillway::kernels

// Idempotent; may be called from any thread. 0: every later operator on a CUDA tensor is computed on the CPU,
// or where devices store no values observed.
extern "C" __attribute__((visibility("default"))) int spillway_kernels_install(void) {
  static spillway::Mutex<spillway::LockOrder::kKernelsInstall> mutex;
  static int result SPILLWAY_GUARDED_BY(mutex) = spillway::kernels::kLater;
  const spillway::Locked lock(mutex);
  if (result == spillway::kernels::kLater) result = spillway::kernels::install_reporting();
  return result;
}
