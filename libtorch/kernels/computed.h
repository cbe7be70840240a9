// One operator whose results are all new tensors, computed by a function of CPU tensors.
//
// Thread-safety: any thread. Errors: those of Call.
#pragma once
#include <tuple>
#include <utility>

#include "libtorch/kernels/call.h"

namespace spillway::kernels {

inline at::Tensor results_of(Call& call, const at::Tensor& computed) {
  return call.result(computed);
}

template <class... Tensors>
std::tuple<Tensors...> results_of(Call& call, const std::tuple<Tensors...>& computed) {
  return std::apply([&](const auto&... one) { return std::tuple<Tensors...>{call.result(one)...}; },
                    computed);
}

// What `by_cpu` makes of the CPU tensors for `arguments`, which are tensors or optional ones: a tensor or a
// tuple of tensors. `by_cpu` changes none of them. `name` must outlive the call.
template <class Function, class... Arguments>
auto computed(const char* name, const Function& by_cpu, const Arguments&... arguments) {
  Call call(name);
  const std::tuple<Arguments...> on_host{call.argument(arguments)...};
  call.begin();
  const auto made = std::apply(by_cpu, on_host);
  call.end();
  auto results = results_of(call, made);
  call.finish();
  return results;
}

}  // namespace spillway::kernels
