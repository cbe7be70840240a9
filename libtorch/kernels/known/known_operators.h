// Where nothing is computed: what an operator does to the values that are known. CUDA's own kernels run, for
// their memory; of small tensors whose inputs are all known the CPU's kernel then says what they hold.
//
// Thread-safety: facts are constant. Ownership: none. Errors: none; an operator whose CPU kernel fails leaves
// values unknown.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <optional>
#include <string_view>
#include <vector>

namespace spillway::kernels {

struct KnownOperator {
  std::optional<c10::OperatorHandle> handle;  // nullopt: none that the CPU computes the same
  std::vector<size_t> written;                // arguments
  bool overwrites = false;                    // without reading what these held
  bool gives_memory = false;                  // and writes nothing there
  bool copies = false;                        // aten::copy_
  bool resizes = false;                       // aten::resize_
  bool reads_by_itself = false;               // how large its result is, or whether it is true
  bool picks_elements = false;                // of those: its result has at most a row for each element
  std::optional<bool> of_finite;              // what it says where numbers are finite and checks pass
  bool spares_last = false;                   // where numbers are finite, the last that it may write
};

// Null for what is none of ATen's operators. `name` and `overload` are those of a schema, which stay.
const KnownOperator* known_operator(const char* name, const char* overload);

// While one lives, this thread's operators are what the backends make of them: no autograd, no modes of the
// program's, no casts, and nobody is told.
class Aside {
 public:
  Aside();

 private:
  c10::impl::ExcludeDispatchKeyGuard plain_;
  at::DisableRecordFunctionGuard unrecorded_;
};

// Within an Aside. The operator's results from arguments on the CPU, which it changes where it writes them.
// nullopt: it cannot be computed.
std::optional<std::vector<c10::IValue>> compute_on_cpu(const KnownOperator& op,
                                                       std::vector<c10::IValue> arguments);

}  // namespace spillway::kernels
